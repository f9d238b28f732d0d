/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_from.cu - a combine to which the home ranks give biases or weights of pairs, and every
 * combine and dispatch backward that adds by last choice: one launch, in rounds through the
 * stages. The other kernels that add are faster, and stay as they are. Weights go first, each to
 * the rank that its pair travels to, as a dispatch sends them, and count as a round that arrives.
 * Work: reads the rows of all pairs here, the biases and the weights, writes this rank's unique
 * rows and T rows. Order: choices, then home_sums.cuh.
 * Launch: comm.blocks blocks, which wait for other ranks; ends the operation.
 */
#include "kernels/flows/sums/home_sums.cuh"
#include "kernels/flows/sums/sum_rounds.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"

/* With the weights that the home ranks have sent. */
struct given_places : stored_places {
    __device__ __forceinline__ const float *given_weights(const struct round_row &at) const
    {
        const int64_t token = (int64_t)at.home * a.plan.shape.max_tokens + at.record->token;

        return a.token_weights ? (const float *)(const void *)a.plan.weights[a.comm.rank] +
                                     token * a.plan.shape.top_k
                               : NULL;
    }
};

/* Returns the rounds that have arrived, the weights one of them. */
template <typename T>
static __device__ uint64_t sum_from_home(const struct epx_combine_rows &a, struct exchange &x,
                                         struct row_list &list)
{
    const uint64_t before = a.token_weights != NULL;

    if (before) {
        send_pair_weights(a.comm, a.plan, a.token_weights, a.num_tokens);
        signal_arrival(a.comm);
        if (!await_arrivals(a.comm, x, before))
            return before;
    }
    sum_in_rounds<T, struct home_sums, struct given_places>(a, x, before, list);
    return before + (uint64_t)a.rounds.num;
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    combine_from(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    uint64_t rounds = 0;
    bool failed;

    await_kernel_before();
    if (begin_moves(a.comm, a.note, NULL, a.plan.outcome, x))
        rounds = sum_from_home<T>(a, x, lists[threadIdx.x / EPX_WARP]);
    if (!is_last_block(a.comm, &x, failed) || threadIdx.x)
        return;
    note_failure(a.comm, x, failed);
    spoil_routing(a.comm, x, a.plan.outcome);
    if (x.outcome.code == EPX_SUCCESS)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_exchange(a.comm, x, rounds, rounds ? (uint64_t)a.rounds.num - 1 : 0, a.num_tokens,
                 x.outcome);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(combine_from);

int epx_launch_combine_from(const struct epx_combine_rows *args, EPX_Stream stream)
{
    return launch_behind({(unsigned)args->comm.blocks, EPX_WAITING_THREADS, 0, stream},
                         kernels[epx_sum_kernel(args)], *args);
}

static const struct epx_loaded loaded(kernels);

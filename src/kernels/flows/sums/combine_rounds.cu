/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_rounds.cu - a combine or dispatch backward in rounds through stages, where ranks store
 * into each other's memory: the sum of each row's pairs, rounded once, goes straight into the home
 * rank's stage at the row's place, and home adds the tokens of the round. It takes what the other
 * kernels, which are faster, do not: more rows than a stage holds, biases, and weights that the
 * home ranks give to many pairs. Such weights go first, each to the rank that its pair travels to,
 * as a dispatch sends them, and count as a round that arrives.
 * Work: reads the rows of all pairs here, the biases and the weights, writes this rank's unique
 * rows and T rows. Order: choices, then home_sums.cuh.
 * Launch: comm.blocks blocks, which wait for other ranks; ends the operation.
 */
#include "kernels/flows/sums/home_sums.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/protocol.cuh"

/* All blocks; so many rounds have arrived before the first. */
template <typename T>
static __device__ void sum_in_rounds(const struct epx_combine_rows &a, struct exchange &x,
                                     uint64_t before, struct row_list &list)
{
    const bool weighted = a.backward && weights_come(x);

    for (int64_t i = 0; i < a.rounds.num; i++) {
        const struct epx_round round = epx_round_of(&a.rounds, i);
        const struct stored_places places = {a, round};

        if (i && !await_credits(a.comm, x, (uint64_t)i))
            return;
        send_sums<T>(a, places, weighted, list);
        signal_arrival(a.comm);
        if (!await_arrivals(a.comm, x, before + (uint64_t)i + 1))
            return;
        sum_tokens<T>(a, places, weighted, list);
        if (i + 1 < a.rounds.num)
            signal_credit(a.comm);
    }
}

/* Returns the rounds that have arrived, the weights one of them. */
template <typename T>
static __device__ uint64_t combine_in_rounds(const struct epx_combine_rows &a, struct exchange &x,
                                             struct row_list &list)
{
    const uint64_t before = a.given;

    if (before) {
        send_pair_weights(a.comm, a.plan, a.weights, a.num_tokens);
        signal_arrival(a.comm);
        if (!await_arrivals(a.comm, x, before))
            return before;
    }
    sum_in_rounds<T>(a, x, before, list);
    return before + (uint64_t)a.rounds.num;
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    combine_rounds(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    uint64_t rounds = 0;
    bool failed;

    await_kernel_before();
    if (begin_moves(a.comm, a.note, NULL, a.plan.outcome, x))
        rounds = combine_in_rounds<T>(a, x, lists[threadIdx.x / EPX_WARP]);
    if (!is_last_block(a.comm, &x, failed) || threadIdx.x)
        return;
    note_failure(a.comm, x, failed);
    spoil_routing(a.comm, x, a.plan.outcome);
    if (x.outcome.code == EPX_SUCCESS)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_exchange(a.comm, x, rounds, rounds ? (uint64_t)a.rounds.num - 1 : 0, a.num_tokens,
                 x.outcome);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) =
    SUM_KERNELS(combine_rounds);

int epx_launch_combine_rounds(const struct epx_combine_rows *args, EPX_Stream stream)
{
    return launch_behind({(unsigned)args->comm.blocks, EPX_WAITING_THREADS, 0, stream},
                         kernels[epx_sum_kernel(args)], *args);
}

static const struct epx_loaded loaded(kernels);

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_rounds.cu - combine by messages where the stages do not hold all rows: round by round
 * what pack_sums, await_messages and unpack_sums do where they do, in one launch.
 * Work: reads the rows of all pairs here, writes T rows. Order: choices, then ranks.
 * Launch: comm.blocks blocks, which wait for other ranks; ends the operation.
 */
#include "kernels/flows/sums/home_sums.cuh"
#include "kernels/flows/sums/passed_sums.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

template <typename T, typename Sums>
static __device__ void sum_round(const struct epx_combine_rows &a, struct exchange &x,
                                 struct message_rows &rows, struct passing &passing,
                                 struct row_list &list)
{
    uint64_t number = begin_rounds(a.comm, x), before = number;
    auto outside = [&](int32_t r) {
        return message_of_rows(a.plan, a.comm, a.rounds, rows, r, false);
    };
    auto inside = [&](int32_t r) {
        return message_inside(a.plan.nodes, a.rounds, rows, passing, r, false);
    };

    for (int64_t i = 0; i < a.rounds.num && is_on(a.comm); i++) {
        const struct round round = round_of(a.rounds, i);
        struct packed_places places = {a, round, rows};
        bool weighted = a.backward && a.comm.state->weighted;

        find_message_rows(a.plan, a.comm, a.rounds, round, rows);
        send_sums<T>(a, places, weighted, list);
        if (a.plan.nodes.num_nodes) {
            find_passing(a.plan, a.comm, a.rounds, rows, passing);
            if (!exchange_round(a.comm, x, before, ++number - before, a.plan, inside))
                return;
            pass_rank_sums<T, Sums>(a, round, rows, passing, weighted, list);
        }
        if (!exchange_round(a.comm, x, before, ++number - before, a.plan, outside))
            return;
        sum_tokens<T, Sums>(a, places, weighted, list);
        __syncthreads();
    }
}

/* All of a kernel. */
template <typename T, typename Sums>
static __device__ __forceinline__ void combine_all(const struct epx_combine_rows &a)
{
    __shared__ struct exchange x;
    __shared__ struct message_rows rows;
    __shared__ struct passing passing;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];

    sum_round<T, Sums>(a, x, rows, passing, lists[threadIdx.x / EPX_WARP]);
    if (!is_last_block(a.comm) || threadIdx.x)
        return;
    if (a.comm.state->outcome.code == EPX_SUCCESS && !aborted(a.comm))
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_operation(a.comm, a.num_tokens);
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    combine_rounds(const __grid_constant__ struct epx_combine_rows a)
{
    combine_all<T, struct plain_sums>(a);
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    combine_home_rounds(const __grid_constant__ struct epx_combine_rows a)
{
    combine_all<T, struct home_sums>(a);
}

static void (*const kernels[2][NUM_SUM_KERNELS])(struct epx_combine_rows) = {
    SUM_KERNELS(combine_rounds), SUM_KERNELS(combine_home_rounds)};

int epx_launch_combine_rounds(const struct epx_combine_rows *args, EPX_Stream stream)
{
    kernels[epx_has_home_sums(args)]
           [epx_sum_kernel(args)]<<<(unsigned)args->comm.blocks, EPX_WAITING_THREADS,
                                    epx_passing_bytes(&args->plan.nodes), stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels[0]), loaded_home(kernels[1]);

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dispatch_rounds.cu - dispatch by messages where the stages do not hold all rows: round by round
 * what pack_rows, await_messages and unpack_rows do where they do, in one launch.
 * Work: reads T rows, writes unique rows. Order: none.
 * Launch: comm.blocks blocks, which wait for other ranks. move_rows or move_grads follows.
 */
#include "kernels/flows/rows/packs.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

template <bool LIST>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    dispatch_rounds(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct message_rows rows;
    __shared__ struct passing passing;
    __shared__ struct record_range range;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    struct row_list &list = lists[threadIdx.x / EPX_WARP];
    uint64_t number = begin_rounds(a.comm, x), before = number;
    auto outside = [&](int32_t r) {
        return message_of_rows(a.plan, a.comm, a.rounds, rows, r, true);
    };
    auto inside = [&](int32_t r) {
        return message_inside(a.plan.nodes, a.rounds, rows, passing, r, true);
    };

    for (int64_t i = 0; i < a.rounds.num && is_on(a.comm); i++) {
        struct round round = round_of(a.rounds, i);

        find_message_rows(a.plan, a.comm, a.rounds, round, rows);
        pack_tokens<LIST>(a, round, rows, list);
        if (!exchange_round(a.comm, x, before, ++number - before, a.plan, outside))
            return;
        if (a.plan.nodes.num_nodes) {
            find_passing(a.plan, a.comm, a.rounds, rows, passing);
            pass_tokens(a, round, rows, passing, list);
            if (!exchange_round(a.comm, x, before, ++number - before, a.plan, inside))
                return;
        }
        range_of_rows(a.comm, rows, range);
        unpack_records<LIST>(a, round, rows, range, list);
        __syncthreads();
    }
}

static void (*const kernels[])(struct epx_dispatch_rows) = {dispatch_rounds<false>,
                                                            dispatch_rounds<true>};

int epx_launch_dispatch_rounds(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    kernels[args->fields.num > 1]<<<(unsigned)args->comm.blocks, EPX_WAITING_THREADS,
                                    epx_passing_bytes(&args->plan.nodes), stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);

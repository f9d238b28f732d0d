/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pass_sums.cu - a relay in combine by messages: the sum of what the ranks of this node have of
 * each node row, by rank or last choice, rounded once, by home; then posts their exchange.
 * Work: reads the round's unique rows of other nodes' homes here, writes their node rows.
 * Order: ranks or choices. Launch: the whole device, waits for nothing. await_messages and
 * unpack_sums follow.
 */
#include "kernels/flows/sums/passed_sums.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    pass_sums(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct message_rows rows;
    __shared__ struct passing passing;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    bool on = is_on(a.comm);

    if (on) {
        find_message_rows(a.plan, a.comm, a.rounds, a.round, rows);
        find_passing(a.plan, a.comm, a.rounds, rows, passing);
        pass_rank_sums<T>(a, a.round, rows, passing, a.backward && a.comm.state->weighted,
                          lists[threadIdx.x / EPX_WARP]);
    }
    if (is_last_block(a.comm) && on)
        post_exchange(a.comm, a.plan.outgoing, a.plan.incoming, [&](int32_t r) {
            return message_of_rows(a.plan, a.comm, a.rounds, rows, r, false);
        });
}

static void (*const kernels[NUM_ADDED_TYPES])(struct epx_combine_rows) =
    KERNELS_OF_TYPES(pass_sums);

int epx_launch_pass_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    const EPX_Datatype type = args->wide ? EPX_FLOAT32 : args->datatype; /* of what travels */
    int64_t rows = (int64_t)args->rounds.tokens * args->plan.nodes.num_served;
    unsigned blocks = epx_blocks_for_rows(args->comm, rows, args->rounds.cut.bytes);

    kernels[type - EPX_FLOAT16]<<<blocks, EPX_WAITING_THREADS, epx_passing_bytes(&args->plan.nodes),
                                  stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels);

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_small.cu - a routing of few pairs in one launch and one hop: ids go to all ranks, and every
 * block has them all in shared memory (small_ids.cuh) and numbers pairs on its own
 * (small_slots.cuh). It leaves the same plan and view as route_tokens.
 * Work: all ids in every block, beside what small_slots.cuh says. Order: (source, token, choice).
 * Launch: comm.blocks blocks, which wait for other ranks and for what all of them tell.
 */
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/routing/small_ids.cuh"
#include "kernels/routing/small_slots.cuh"

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    route_small(const __grid_constant__ struct epx_route_tokens a,
                const __grid_constant__ struct epx_small_parts parts)
{
    extern __shared__ __align__(16) char small_shared[];
    __shared__ struct exchange x;
    __shared__ struct small_routing s;
    struct first_look look;
    struct told_word told;
    bool failed;

    told = prepare_ids(a, gridDim.x);
    prepare_small(a, small_shared, parts, s);
    await_kernel_before();
    look = look_first(a.comm);
    read_told(a, told);
    begin_exchange(a.comm, a.note, 0, look, x);
    if (x.outcome.code == EPX_SUCCESS) {
        send_ids(a, x, gridDim.x, told);
        if (receive_ids(a, x, s)) {
            let_next_kernel_begin(); /* from here on no block waits for another rank */
            if (find_small_offsets(a, x, s))
                find_small_slots(a, s);
        }
    }
    if (is_last_block(a.comm, &x, failed) && threadIdx.x == 0) {
        note_failure(a.comm, x, failed);
        end_routing(a, x, false, x.remarks);
    }
}

int epx_launch_route_small(const struct epx_route_tokens *args, EPX_Stream stream)
{
    struct epx_small_parts parts = epx_small_parts_of(&args->plan, args->comm.num_ranks);

    return launch_behind({(unsigned)args->comm.blocks, EPX_WAITING_THREADS,
                          (unsigned)epx_small_bytes(&parts), stream},
                         route_small, *args, parts);
}

static const struct epx_loaded loaded(route_small, EPX_SMALL_BYTES);

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * move_rows.cu - the last kernel of dispatch where ranks store into each other's memory. The first
 * blocks send rows, the others take what comes, at once (row_movers.cuh); all zero padding. If a
 * stage that holds only some rows is in use dispatch_rows has moved them, round by round: then all
 * blocks spread them.
 * Work: reads T rows and those that came, writes every slot once. Order: none, every byte has one
 * writer.
 * Launch: movers.senders blocks, then movers.takers, which wait for the other ranks' senders. No
 * block waits for another of its own GPU. Ends the operation.
 */
#include "kernels/streaming/row_movers.cuh"
#include "kernels/dispatch/spreads.cuh"

template <bool LIST>
static __device__ void move(const struct epx_dispatch_rows &a, struct exchange &x, char *room,
                            uint64_t *barriers)
{
    __shared__ struct windows<LIST> w;
    struct boxes boxes = make_boxes(room, barriers, a.movers.slices.bytes, LIST ? a.fields.num : 1);
    struct mover<LIST> mover = {
        a, x, w, boxes, crew_of_role(a.movers.senders), takes_weights(a)
    };

    resume_exchange(a.comm, x);
    read_windows(a, x, w);
    if (is_sending_block(a.movers.senders))
        send_all(mover);
    else if (a.comm.num_ranks > 1)
        take_all(mover);
}

template <bool LIST> static __device__ void spread(const struct epx_dispatch_rows &a, char *room)
{
    __shared__ struct record_range range;
    struct row_list *lists = (struct row_list *)(void *)room;

    find_range(a.plan, a.comm.num_ranks, a.plan.records[a.comm.rank], 0, a.plan.shape.max_tokens,
               range);
    spread_records<LIST>(a, range, lists[threadIdx.x / EPX_WARP], takes_weights(a));
}

template <bool LIST>
static __global__ void __launch_bounds__(MOVING_THREADS)
    move_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    extern __shared__ __align__(16) char moving_shared[];
    __shared__ uint64_t barriers[EPX_MOVING_WARPS * MOST_BOXES];
    __shared__ struct exchange x;
    bool on = is_on(a.comm);

    if (on && a.comm.state->deferred)
        move<LIST>(a, x, moving_shared, barriers);
    else if (on)
        spread<LIST>(a, moving_shared);
    if (on)
        zero_rest<LIST>(a, takes_weights(a));
    end_dispatch(a, on);
}

static void (*const kernels[])(struct epx_dispatch_rows) = {move_rows<false>, move_rows<true>};

int epx_launch_move_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    unsigned blocks = (unsigned)(args->movers.senders + args->movers.takers);

    kernels[args->fields.num > 1]<<<blocks, MOVING_THREADS, BOXES_BYTES, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(kernels, BOXES_BYTES);

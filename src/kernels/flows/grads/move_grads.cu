/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * move_grads.cu - the last kernel of combine backward. Where ranks store into each other's memory
 * its first blocks send rows of gradients to other ranks (row_movers.cuh, or row_bundles.cuh if
 * they are short); the others scale what comes, and this rank's own rows, into the slots, and
 * multiply it with the rows that combine was given, all at once (grad_movers.cuh). Where rows came
 * by messages, or round by round through a stage that holds only some, each lies raw in its first
 * slot, and all blocks scale. All zero padding. Rows of any alignment have kernels of their own.
 * Work: reads T rows, those that came and as many forward rows as slots, writes every slot once.
 * Order: dot products in blocks of 1024 elements: 256 lanes, a binary tree, blocks in order: see
 * EPX_Combine_backward(3).
 * Launch: phases.cuh. Ends the operation.
 */
#include "kernels/flows/grads/grad_movers.cuh"
#include "kernels/flows/rows/end_dispatch.cuh"
#include "kernels/flows/rows/row_bundles.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/warp/sum_rows.cuh"

enum {
    SCALING_ROOM = 100 * EPX_LINE, /* bytes of a warp */
    MOVING_THREADS = EPX_ADDING_WARPS * EPX_WARP,
    MOVING_BYTES = EPX_ADDING_WARPS * SCALING_ROOM
};
static_assert(2 * (sizeof(struct place_list) + EPX_BUNDLE_BYTES + EPX_ROW_ENDS + EPX_LINE) <=
                  SCALING_ROOM,
              "two boxes of a sender of bundles are in the room of a warp");
static_assert(sizeof(struct goal_list) + EPX_GRAD_SLICE + EPX_ROW_ENDS <= SCALING_ROOM - EPX_LINE,
              "a sender's box is in the room of a warp");

/* A block's own part of what move knows. */
template <typename T> struct grad_room {
    struct exchange x;
    struct windows<false> w;
    uint64_t barriers[EPX_ADDING_WARPS * MOST_BOXES];
    struct slot_list<T> lists[EPX_ADDING_WARPS];
};

/* What goes into the boxes of a sender's warp. */
static __device__ __forceinline__ struct box_shape shape_sent(const struct epx_dispatch_rows &a)
{
    if (a.movers.rows_log2)
        return shape_of_bundles(a, SCALING_ROOM);
    return {SCALING_ROOM, sizeof(struct goal_list), a.movers.slices.bytes, EPX_ROW_ENDS, EPX_LINE};
}

/* N elements are read and written at once. */
template <typename T, int N>
static __device__ void scale_rows(const struct epx_dispatch_rows &a, struct grad_room<T> &room,
                                  char *shared, bool streams)
{
    static_assert(PIECES_OF_BOX<T> * PIECE_ROOM<T> + sizeof(struct grad_block<T>) <= SCALING_ROOM,
                  "a receiver's box is in the room of a warp");
    const int32_t senders = streams ? senders_here(a.movers.phase, a.movers.senders) : 0;
    const bool sends = is_sending_block(senders);
    const struct box_shape taken = {SCALING_ROOM, sizeof(struct grad_block<T>),
                                    PIECES_OF_BOX<T> * PIECE_ROOM<T>, 0, 16};
    struct boxes boxes = make_boxes(shared, room.barriers, sends ? shape_sent(a) : taken);
    const struct crew crew = sends ? crew_of_role(senders) : crew_of_receivers(a.movers, senders);
    struct mover<false> mover = {
        a, room.x, room.w, boxes, crew, false, false
    };
    bool takes = true;

    if (streams)
        resume_exchange(a.comm, room.x);
    if (sends) {
        begin_to_send(a.comm, room.x.epoch, senders);
        if (a.movers.rows_log2)
            send_bundles(mover);
        else
            send_all(mover);
        end_writes(); /* boxes lie elsewhere from here on */
        shape_boxes(boxes, taken);
        mover.crew = crew_of_receivers(a.movers, senders);
        takes = all_have_begun(a.comm, room.x.epoch);
    }
    if (takes)
        take_grads<T, N>(mover, room.lists[threadIdx.x / EPX_WARP], streams,
                         !streams || takes_stores(room.x, room.w, a.comm.rank));
}

template <typename T, int N>
static __device__ __forceinline__ void move_in_phase(const struct epx_dispatch_rows &a)
{
    extern __shared__ __align__(EPX_LINE) char moving_shared[];
    __shared__ struct grad_room<T> room;

    begin_phase(a.movers.phase);
    bool on = is_on(a.comm);

    if (on)
        scale_rows<T, N>(a, room, moving_shared, a.comm.state->deferred);
    if (on && a.movers.phase != EPX_PHASE_SEND)
        zero_rest<false>(a, true, all_warps());
    end_dispatch(a, on);
}

template <typename T>
static __global__ void __launch_bounds__(MOVING_THREADS, 1)
    move_grads(const __grid_constant__ struct epx_dispatch_rows a)
{
    move_in_phase<T, 16 / sizeof(T)>(a);
}

/* Rows of any alignment. */
template <typename T>
static __global__ void __launch_bounds__(MOVING_THREADS, 1)
    move_odd_grads(const __grid_constant__ struct epx_dispatch_rows a)
{
    move_in_phase<T, 1>(a);
}

static void (*const kernels[NUM_ADDED_TYPES])(struct epx_dispatch_rows) =
    KERNELS_OF_TYPES(move_grads);
static void (*const odd_grad_kernels[NUM_ADDED_TYPES])(struct epx_dispatch_rows) =
    KERNELS_OF_TYPES(move_odd_grads);

int epx_launch_move_grads(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    const bool aligned = rows_are_aligned(args->recv, args->forward, args->rows, args->row_bytes);

    return launch_phase(mover_launch(args->movers, MOVING_THREADS, MOVING_BYTES, stream),
                        (aligned ? kernels : odd_grad_kernels)[args->datatype - EPX_FLOAT16],
                        *args);
}

static const struct epx_loaded loaded(kernels, MOVING_BYTES),
    loaded_odd(odd_grad_kernels, MOVING_BYTES);

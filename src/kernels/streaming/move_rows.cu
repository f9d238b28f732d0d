/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * move_rows.cu - the last kernel of dispatch. Where ranks store into each other's memory its first
 * blocks send rows (row_movers.cuh), the others take what comes (row_takers.cuh), at once. Where
 * rows came by messages, or round by round through a stage that holds only some, each is in its
 * first slot already, and all blocks take it from there. All zero padding.
 * Work: reads T rows and those that came, writes every slot once. Order: none, every byte has one
 * writer.
 * Launch: phases.cuh. Ends the operation.
 */
#include "kernels/streaming/rows_that_stay.cuh"

enum {
    MOVING_THREADS = EPX_MOVING_WARPS * EPX_WARP,
    MOVING_ROOM = (sizeof(struct goal_list) + EPX_BOX_SLICE + EPX_MAX_FIELDS * PIECE_ENDS) /
                      LINE_BYTES * LINE_BYTES +
                  LINE_BYTES,
    MOVING_BYTES = EPX_MOVING_WARPS * MOVING_ROOM
};

template <bool LIST>
static __device__ void move(const struct epx_dispatch_rows &a, struct exchange &x,
                            struct boxes &boxes, bool streams)
{
    __shared__ struct windows<LIST> w;
    const int32_t senders = senders_here(a.movers.phase, a.movers.senders);
    const bool sends = streams && is_sending_block(senders);
    struct mover<LIST> mover = {
        a, x, w, boxes,
            sends ? crew_of_role(senders) : crew_of_takers(a.movers, streams ? senders : 0),
            takes_weights(a), true
    };

    if (!streams) {
        take_all(mover, false, true);
        return;
    }
    resume_exchange(a.comm, x);
    read_windows(a, x, w);
    if (sends) {
        send_all(mover);
    } else if (a.comm.num_ranks > 1) {
        const bool stays = takes_stores(x, w, a.comm.rank);

        if (stays && a.plan.shape.rank_major)
            await_rows_that_stay(mover);
        else
            take_all(mover, true, stays);
    }
}

template <bool LIST>
static __global__ void __launch_bounds__(MOVING_THREADS)
    move_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    extern __shared__ __align__(LINE_BYTES) char moving_shared[];
    __shared__ uint64_t barriers[EPX_MOVING_WARPS * MOST_BOXES];
    __shared__ struct exchange x;
    const struct box_shape shape = {MOVING_ROOM, sizeof(struct goal_list), a.movers.slices.bytes,
                                    PIECE_ENDS * (LIST ? a.fields.num : 1), LINE_BYTES};
    struct boxes boxes = make_boxes(moving_shared, barriers, shape);
    begin_phase(a.movers.phase);
    bool on = is_on(a.comm);

    if (on)
        move<LIST>(a, x, boxes, a.comm.state->deferred);
    if (on && a.movers.phase != EPX_PHASE_SEND)
        zero_rest<LIST>(a, takes_weights(a), all_warps());
    end_dispatch(a, on);
}

static void (*const kernels[])(struct epx_dispatch_rows) = {move_rows<false>, move_rows<true>};

int epx_launch_move_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    return launch_phase(mover_launch(args->movers, MOVING_THREADS, MOVING_BYTES, stream),
                        kernels[args->fields.num > 1], *args);
}

static const struct epx_loaded loaded(kernels, MOVING_BYTES);

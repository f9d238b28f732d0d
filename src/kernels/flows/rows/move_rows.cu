/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * move_rows.cu - the last kernel of dispatch. Where ranks store into each other's memory its first
 * blocks send rows (row_movers.cuh), the others take what comes (row_receivers.cuh), at once. Where
 * rows came by messages, or round by round through a stage that holds only some, each is in its
 * first slot already, and all blocks take it from there. All zero padding. Short rows of one field
 * have a kernel that moves several at once (row_bundles.cuh). Others have blocks of more warps the
 * shorter they are, as what a warp does for a row beside its bytes takes as long for any, and where
 * blocks are few.
 * Work: reads T rows and those that came, writes every slot once. Order: none, every byte has one
 * writer.
 * Launch: phases.cuh. Ends the operation.
 */
#include "kernels/flows/rows/end_dispatch.cuh"
#include "kernels/flows/rows/row_bundles.cuh"
#include "kernels/flows/rows/rows_that_stay.cuh"
#include "kernels/protocol/load_kernels.cuh"

/* A Way is how the warps of a block, WARPS at most, move rows. */
template <bool LIST_> struct single_rows {
    static constexpr bool LIST = LIST_;
    enum { WARPS = EPX_MIDDLE_WARPS };

    static __device__ __forceinline__ struct box_shape shape_of(const struct epx_dispatch_rows &a,
                                                                int32_t room)
    {
        return {room, sizeof(struct goal_list), a.movers.slices.bytes,
                EPX_ROW_ENDS * (LIST ? a.fields.num : 1), EPX_LINE};
    }

    static __device__ __forceinline__ void send(const struct mover<LIST> &mover)
    {
        send_all(mover);
    }

    static __device__ __forceinline__ void take(const struct mover<LIST> &mover, bool waits,
                                                bool stays)
    {
        take_all(mover, waits, stays);
    }
};

/* The Way of rows that are short. */
struct bundled_rows {
    static constexpr bool LIST = false;
    enum { WARPS = EPX_BUNDLE_WARPS };

    static __device__ __forceinline__ struct box_shape shape_of(const struct epx_dispatch_rows &a,
                                                                int32_t room)
    {
        return shape_of_bundles(a, room);
    }

    static __device__ __forceinline__ void send(const struct mover<false> &mover)
    {
        send_bundles(mover);
    }

    static __device__ __forceinline__ void take(const struct mover<false> &mover, bool waits,
                                                bool stays)
    {
        take_bundles(mover, waits, stays);
    }
};

template <typename Way>
static __device__ void move(const struct epx_dispatch_rows &a, struct exchange &x,
                            struct boxes &boxes, bool streams)
{
    __shared__ struct windows<Way::LIST> w;
    const int32_t senders = senders_here(a.movers.phase, a.movers.senders);
    const bool sends = streams && is_sending_block(senders);
    struct mover<Way::LIST> mover = {
        a, x, w, boxes,
            sends ? crew_of_role(senders) : crew_of_receivers(a.movers, streams ? senders : 0),
            takes_weights(a), true
    };

    if (!streams) {
        Way::take(mover, false, true);
        return;
    }
    resume_exchange(a.comm, x);
    read_windows(a, x, w);
    bool takes = a.comm.num_ranks > 1;

    if (sends) {
        begin_to_send(a.comm, x.epoch, senders);
        Way::send(mover);
        mover.crew = crew_of_receivers(a.movers, senders);
        takes = takes && all_have_begun(a.comm, x.epoch);
    }
    if (takes) {
        const bool stays = takes_stores(x, w, a.comm.rank);

        if (stays && a.plan.shape.rank_major)
            await_rows_that_stay(mover);
        else
            Way::take(mover, true, stays);
    }
}

template <typename Way>
static __global__ void __launch_bounds__(Way::WARPS *EPX_WARP, 1)
    move_rows(const __grid_constant__ struct epx_dispatch_rows a, int32_t room)
{
    extern __shared__ __align__(EPX_LINE) char moving_shared[];
    __shared__ uint64_t barriers[Way::WARPS * MOST_BOXES];
    __shared__ struct exchange x;
    struct boxes boxes = make_boxes(moving_shared, barriers, Way::shape_of(a, room));
    begin_phase(a.movers.phase);
    bool on = is_on(a.comm);

    if (on)
        move<Way>(a, x, boxes, a.comm.state->deferred);
    if (on && a.movers.phase != EPX_PHASE_SEND)
        zero_rest<Way::LIST>(a, takes_weights(a), all_warps());
    end_dispatch(a, on);
}

/* Bytes of a box for so many bytes in so many pieces, and a label. */
static constexpr int32_t box_bytes(int32_t bytes, int32_t pieces, int32_t label)
{
    return (bytes + pieces * EPX_ROW_ENDS + label + EPX_LINE) / EPX_LINE * EPX_LINE;
}

/* The memory that a block may have, but what the kernel keeps of it: windows, the exchange,
 * barriers, and a line each for alignment and for words of others. */
template <bool LIST>
static constexpr int32_t
    ROOM_OF_BLOCK = 227 * 1024 - (int32_t)(sizeof(struct windows<LIST>) + sizeof(struct exchange)) -
                    single_rows<LIST>::WARPS *MOST_BOXES *(int32_t)sizeof(uint64_t) - 2 * EPX_LINE;

/* The room of a warp that moves bundles: two boxes, one filled while the other is emptied. */
static const int32_t BUNDLE_ROOM = 2 * box_bytes(EPX_BUNDLE_BYTES, 1, sizeof(struct place_list));

/* The room of a warp that moves long rows. */
static const int32_t LONG_ROOM = box_bytes(EPX_BOX_SLICE, EPX_MAX_FIELDS, sizeof(struct goal_list));

/* Rows of up to 3 KiB have two boxes in the room for one of these. */
static const int32_t MIDDLE_BOX = 15 * EPX_SLICE_QUANTUM;
static_assert(EPX_MIDDLE_SLICE <= MIDDLE_BOX, "a box is in the room of a warp");
template <bool LIST>
static constexpr int32_t MIDDLE_ROOM = box_bytes(MIDDLE_BOX, LIST ? EPX_MAX_FIELDS : 1,
                                                 sizeof(struct goal_list));

/* Where blocks are few, the warps of one share all the memory: each has room for two boxes of
 * 7 KiB, of up to three fields. */
template <bool LIST>
static constexpr int CROWDED_WARPS = LIST ? EPX_CROWDED_LIST_WARPS : EPX_CROWDED_WARPS;
template <bool LIST>
static constexpr int32_t CROWDED_ROOM =
    ROOM_OF_BLOCK<LIST> / CROWDED_WARPS<LIST> / EPX_LINE *EPX_LINE;
static_assert(CROWDED_ROOM<false> >= box_bytes(EPX_BOX_SLICE, 1, sizeof(struct goal_list)) &&
                  CROWDED_ROOM<true> >=
                      box_bytes(EPX_BOX_SLICE, EPX_MAX_FIELDS, sizeof(struct goal_list)),
              "a box is in the room of a warp");
static_assert((int)EPX_MOVING_WARPS <= EPX_MIDDLE_WARPS &&
                  CROWDED_WARPS<false> <= EPX_MIDDLE_WARPS &&
                  CROWDED_WARPS<true> <= EPX_MIDDLE_WARPS &&
                  EPX_MOVING_WARPS * LONG_ROOM <= ROOM_OF_BLOCK<true> &&
                  EPX_MIDDLE_WARPS * MIDDLE_ROOM<true> <= ROOM_OF_BLOCK<true>,
              "a block has room for its warps");

/* The room of a warp, by how many a block has, where rows go one by one. */
template <bool LIST> static int32_t room_of_warp(int32_t warps)
{
    switch (warps) {
    case CROWDED_WARPS<LIST>: return CROWDED_ROOM<LIST>;
    case EPX_MIDDLE_WARPS: return MIDDLE_ROOM<LIST>;
    default: return LONG_ROOM;
    }
}

template <typename Way>
static int launch(const struct epx_dispatch_rows &args, int32_t room, cudaStream_t stream)
{
    const unsigned warps = (unsigned)args.movers.warps;

    return launch_phase(mover_launch(args.movers, warps * EPX_WARP, warps * (unsigned)room, stream),
                        move_rows<Way>, args, room);
}

int epx_launch_move_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    const int32_t warps = args->movers.warps;

    if (args->fields.num > 1)
        return launch<single_rows<true>>(*args, room_of_warp<true>(warps), stream);
    if (args->movers.rows_log2)
        return launch<bundled_rows>(*args, BUNDLE_ROOM, stream);
    return launch<single_rows<false>>(*args, room_of_warp<false>(warps), stream);
}

static const struct epx_loaded loaded(move_rows<single_rows<false>>, ROOM_OF_BLOCK<false>),
    loaded_list(move_rows<single_rows<true>>, ROOM_OF_BLOCK<true>),
    loaded_bundles(move_rows<bundled_rows>, EPX_BUNDLE_WARPS *BUNDLE_ROOM);

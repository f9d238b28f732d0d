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

/* Bytes of a box for so many bytes in so many pieces, and a label. */
static constexpr int32_t box_bytes(int32_t bytes, int32_t pieces, int32_t label)
{
    return (bytes + pieces * EPX_ROW_ENDS + label + EPX_LINE) / EPX_LINE * EPX_LINE;
}

/* A Way is how the warps of a block move rows, and what they have of its memory. */
template <bool LIST_, int WARPS_, int32_t ROOM_> struct single_rows {
    static constexpr bool LIST = LIST_;
    enum { WARPS = WARPS_, ROOM = ROOM_ };

    static __device__ __forceinline__ struct box_shape shape_of(const struct epx_dispatch_rows &a)
    {
        return {ROOM, sizeof(struct goal_list), a.movers.slices.bytes,
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

template <bool LIST>
using long_rows = single_rows<LIST, EPX_MOVING_WARPS,
                              box_bytes(EPX_BOX_SLICE, EPX_MAX_FIELDS, sizeof(struct goal_list))>;

/* Rows of up to 3 KiB have two boxes in the room for one of these. */
static const int32_t MIDDLE_BOX = 15 * EPX_SLICE_QUANTUM;
static_assert(EPX_MIDDLE_SLICE <= MIDDLE_BOX, "a box is in the room of a warp");

template <bool LIST>
using middle_rows =
    single_rows<LIST, EPX_MIDDLE_WARPS,
                box_bytes(MIDDLE_BOX, LIST ? EPX_MAX_FIELDS : 1, sizeof(struct goal_list))>;

/* The room of a warp where so many have all the memory that a block may have, but what `move` keeps
 * of its own. */
template <bool LIST> static constexpr int32_t room_of_warp(int32_t warps)
{
    const int32_t BLOCK = 227 * 1024;
    const int32_t known = (int32_t)(sizeof(struct windows<LIST>) + sizeof(struct exchange)) +
                          warps * MOST_BOXES * (int32_t)sizeof(uint64_t) + 2 * EPX_LINE;

    return (BLOCK - known) / warps / EPX_LINE * EPX_LINE;
}

/* The Way of long rows where blocks are few: a warp has room for two boxes of 7 KiB, of up to
 * three fields. */
template <bool LIST>
static constexpr int CROWDED_WARPS = LIST ? EPX_CROWDED_LIST_WARPS : EPX_CROWDED_WARPS;
template <bool LIST>
using crowded_rows =
    single_rows<LIST, CROWDED_WARPS<LIST>, room_of_warp<LIST>(CROWDED_WARPS<LIST>)>;
static_assert((int)crowded_rows<false>::ROOM >=
                      box_bytes(EPX_BOX_SLICE, 1, sizeof(struct goal_list)) &&
                  (int)crowded_rows<true>::ROOM >=
                      box_bytes(EPX_BOX_SLICE, EPX_MAX_FIELDS, sizeof(struct goal_list)),
              "a box is in the room of a warp");

/* The Way of rows that are short. */
struct bundled_rows {
    static constexpr bool LIST = false;
    enum {
        WARPS = EPX_BUNDLE_WARPS,
        /* one box is filled while the other is emptied */
        ROOM = 2 * box_bytes(EPX_BUNDLE_BYTES, 1, sizeof(struct place_list)),
    };

    static __device__ __forceinline__ struct box_shape shape_of(const struct epx_dispatch_rows &a)
    {
        return shape_of_bundles(a, ROOM);
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
    move_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    extern __shared__ __align__(EPX_LINE) char moving_shared[];
    __shared__ uint64_t barriers[Way::WARPS * MOST_BOXES];
    __shared__ struct exchange x;
    struct boxes boxes = make_boxes(moving_shared, barriers, Way::shape_of(a));
    begin_phase(a.movers.phase);
    bool on = is_on(a.comm);

    if (on)
        move<Way>(a, x, boxes, a.comm.state->deferred);
    if (on && a.movers.phase != EPX_PHASE_SEND)
        zero_rest<Way::LIST>(a, takes_weights(a), all_warps());
    end_dispatch(a, on);
}

/* What a block has for its boxes. */
template <typename Way> static constexpr int room_of_block()
{
    return Way::WARPS * Way::ROOM;
}

template <typename Way> static int launch(const struct epx_dispatch_rows &args, cudaStream_t stream)
{
    return launch_phase(
        mover_launch(args.movers, Way::WARPS * EPX_WARP, room_of_block<Way>(), stream),
        move_rows<Way>, args);
}

/* Rows that go one by one. */
template <bool LIST>
static int launch_single(const struct epx_dispatch_rows &args, cudaStream_t stream)
{
    switch (args.movers.warps) {
    case CROWDED_WARPS<LIST>: return launch<crowded_rows<LIST>>(args, stream);
    case EPX_MIDDLE_WARPS: return launch<middle_rows<LIST>>(args, stream);
    default: return launch<long_rows<LIST>>(args, stream);
    }
}

int epx_launch_move_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    if (args->fields.num > 1)
        return launch_single<true>(*args, stream);
    return args->movers.rows_log2 ? launch<bundled_rows>(*args, stream)
                                  : launch_single<false>(*args, stream);
}

template <typename Way> struct loaded_way : epx_loaded {
    loaded_way() : epx_loaded(move_rows<Way>, room_of_block<Way>())
    {
    }
};

static const loaded_way<long_rows<false>> loaded;
static const loaded_way<long_rows<true>> loaded_list;
static const loaded_way<middle_rows<false>> loaded_middle;
static const loaded_way<middle_rows<true>> loaded_middle_list;
static const loaded_way<crowded_rows<false>> loaded_crowded;
static const loaded_way<crowded_rows<true>> loaded_crowded_list;
static const loaded_way<bundled_rows> loaded_bundles;

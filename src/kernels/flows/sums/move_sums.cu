/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * move_sums.cu - the last kernel of combine and dispatch backward where ranks store into each
 * other's memory. The first blocks send this rank's sums for other ranks, the others add what comes
 * (sum_movers.cuh), at once.
 * Work: reads the rows of all pairs here once, writes this rank's unique rows and T rows. Order:
 * choices, then ranks, or their last choices.
 * Rows that do not lie on multiples of 16 bytes have kernels of their own: code for both costs
 * registers.
 * Launch: phases.cuh. Ends the operation.
 */
#include "kernels/flows/sums/sum_movers.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/phases.cuh"

/* What a warp needs of shared memory. */
struct adding_room {
    struct record_run runs[EPX_MOST_DEVICE_RANKS];
    struct summands sums[2];
};

/* What it needs if it adds through a ring. */
struct alignas(STEP_LINE) ring_room {
    char ring[RING_ROOM];
    struct adding_room room;
};

enum {
    RING_THREADS = EPX_RING_WARPS * EPX_WARP,
    RING_BYTES = EPX_RING_WARPS * sizeof(struct ring_room),
    ODD_THREADS = EPX_ADDING_WARPS * EPX_WARP,
    ODD_BYTES = EPX_ADDING_WARPS * sizeof(struct adding_room)
};

/* All of a kernel. */
template <typename T, bool ODD>
static __device__ __forceinline__ void move_all(const struct epx_combine_rows &a,
                                                struct adding_room &room, char *ring)
{
    const int32_t senders = senders_here(a.movers.phase, a.movers.senders);

    begin_phase(a.movers.phase);
    const bool on = is_on(a.comm), sends = is_sending_block(senders);
    struct sum_mover mover = {a, a.comm.state->epoch + 1,
                              sends ? crew_of_role(senders) : crew_of_receivers(a.movers, senders),
                              a.backward && a.comm.state->weighted};
    bool takes = on;

    if (takes && sends) {
        begin_to_send(a.comm, mover.epoch, senders);
        send_chunks<T, ODD>(mover, room.runs, room.sums, ring);
        mover.crew = crew_of_receivers(a.movers, senders);
        takes = all_have_begun(a.comm, mover.epoch);
    }
    if (takes)
        take_tokens<T, ODD>(mover, room.sums, ring);
    if (!is_last_mover(a.comm, a.movers))
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_operation(a.comm, a.num_tokens);
}

template <typename T>
static __global__ void __launch_bounds__(RING_THREADS, 1)
    move_sums(const __grid_constant__ struct epx_combine_rows a)
{
    extern __shared__ __align__(STEP_LINE) char adding_shared[];
    struct ring_room *rooms = (struct ring_room *)(void *)adding_shared;
    struct ring_room &own = rooms[threadIdx.x / EPX_WARP];

    move_all<T, false>(a, own.room, own.ring);
}

template <typename T>
static __global__ void __launch_bounds__(ODD_THREADS, 1)
    move_odd_sums(const __grid_constant__ struct epx_combine_rows a)
{
    extern __shared__ __align__(STEP_LINE) char adding_shared[];
    struct adding_room *rooms = (struct adding_room *)(void *)adding_shared;

    move_all<T, true>(a, rooms[threadIdx.x / EPX_WARP], NULL);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(move_sums);
static void (*const odd_kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) =
    SUM_KERNELS(move_odd_sums);

/* Whether a row or a sum, and so the end of a slice, does not lie where packs can be loaded and
 * stored. Sums that travel as float32 have packs of 8 bytes in rows. */
static int sums_are_odd(const struct epx_combine_rows *args)
{
    const int64_t row_bytes = args->row_bytes / (args->wide ? 2 : 1);
    const uintptr_t bits = args->wide ? 7 : 15;

    return (((uintptr_t)args->rows | (uintptr_t)args->sums | (uintptr_t)row_bytes) & bits) != 0;
}

int epx_launch_move_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    const int kernel = epx_sum_kernel(args);

    if (sums_are_odd(args))
        return launch_phase(mover_launch(args->movers, ODD_THREADS, ODD_BYTES, stream),
                            odd_kernels[kernel], *args);
    return launch_phase(mover_launch(args->movers, RING_THREADS, RING_BYTES, stream),
                        kernels[kernel], *args);
}

static const struct epx_loaded loaded(kernels, RING_BYTES), loaded_odd(odd_kernels, ODD_BYTES);

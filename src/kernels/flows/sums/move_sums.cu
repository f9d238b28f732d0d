/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * move_sums.cu - the last kernel of combine and dispatch backward where ranks store into each
 * other's memory. The first blocks send this rank's sums for other ranks, the others add what comes
 * (sum_movers.cuh), at once.
 * Work: reads the rows of all pairs here once, writes this rank's unique rows and T rows. Order:
 * choices, then ranks.
 * Rows that do not lie on multiples of 16 bytes are added by functions of their own.
 * Launch: phases.cuh. Ends the operation.
 */
#include "kernels/flows/sums/sum_movers.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/phases.cuh"

/* What a warp needs of its block's memory. */
struct alignas(STEP_LINE) adding_room {
    char ring[RING_ROOM]; /* for rows that are not odd */
    struct record_run runs[EPX_MOST_DEVICE_RANKS];
    struct summands sums[2];
};

enum {
    ADDING_THREADS = EPX_RING_WARPS * EPX_WARP,
    ADDING_BYTES = EPX_RING_WARPS * sizeof(struct adding_room)
};

/* Whether a row or a sum, and so the end of a slice, does not lie where packs can be loaded and
 * stored. Sums that travel as float32 have packs of 8 bytes in rows. */
static __device__ bool sums_are_odd(const struct epx_combine_rows &a)
{
    const int64_t row_bytes = a.row_bytes / (a.wide ? 2 : 1);
    const uintptr_t bits = a.wide ? 7 : 15;

    return (((uintptr_t)a.rows | (uintptr_t)a.sums | (uintptr_t)row_bytes) & bits) != 0;
}

template <typename T>
static __device__ EPX_COLD void send_odd_chunks(const struct sum_mover &m, struct adding_room &room)
{
    send_chunks<T, true>(m, room.runs, room.sums, NULL);
}

template <typename T>
static __device__ EPX_COLD void take_odd_tokens(const struct sum_mover &m, struct adding_room &room)
{
    take_tokens<T, true>(m, room.sums, NULL);
}

template <typename T>
static __global__ void __launch_bounds__(ADDING_THREADS, 1)
    move_sums(const __grid_constant__ struct epx_combine_rows a)
{
    extern __shared__ __align__(STEP_LINE) char adding_shared[];
    struct adding_room *rooms = (struct adding_room *)(void *)adding_shared;
    struct adding_room &room = rooms[threadIdx.x / EPX_WARP];
    const bool odd = sums_are_odd(a);
    const int32_t senders = senders_here(a.movers.phase, a.movers.senders);

    begin_phase(a.movers.phase);
    const bool on = is_on(a.comm), sends = is_sending_block(senders);
    struct sum_mover mover = {a, a.comm.state->epoch + 1,
                              sends ? crew_of_role(senders) : crew_of_takers(a.movers, senders),
                              a.backward && a.comm.state->weighted};
    bool takes = on;

    if (takes && sends) {
        begin_to_send(a.comm, mover.epoch, senders);
        if (odd)
            send_odd_chunks<T>(mover, room);
        else
            send_chunks<T, false>(mover, room.runs, room.sums, room.ring);
        mover.crew = crew_of_takers(a.movers, senders);
        takes = all_have_begun(a.comm, mover.epoch);
    }
    if (takes && odd)
        take_odd_tokens<T>(mover, room);
    else if (takes)
        take_tokens<T, false>(mover, room.sums, room.ring);
    if (!is_last_mover(a.comm, a.movers))
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_operation(a.comm, a.num_tokens);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(move_sums);

int epx_launch_move_sums(const struct epx_combine_rows *args, EPX_Stream stream)
{
    return launch_phase(mover_launch(args->movers, ADDING_THREADS, ADDING_BYTES, stream),
                        kernels[epx_sum_kernel(args)], *args);
}

static const struct epx_loaded loaded(kernels, ADDING_BYTES);

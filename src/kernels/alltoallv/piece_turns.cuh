/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * piece_turns.cuh - how the warps of all blocks share copies, one for each rank, piece by piece.
 * Pieces of different copies take turns, so that no rank is behind at the end and no link is idle.
 * The first piece of a warp follows from its number; then it claims the next that nobody has, while
 * it moves the one before, so that all end at about the same time: not every multiprocessor stores
 * as fast into another GPU's memory.
 *
 * In each round of an operation blocks send, and then they may take. Counters of claims go on from
 * one to the other, and from round to round. A team of W warps that shares P pieces adds P to its
 * counter: P - W claims of pieces, if there are more than W, and one that is in vain for each warp
 * that had a piece. So all blocks know where the counter stands when they go on. No warp claims
 * before all warps of this rank have claimed what they could of what was shared last: between the
 * two all blocks wait for arrivals from every block, or for credits, of this rank too. The last
 * block of an operation sets the counters to 0.
 */
#ifndef EPX_KERNELS_ALLTOALLV_PIECE_TURNS_CUH
#define EPX_KERNELS_ALLTOALLV_PIECE_TURNS_CUH

#include "kernels/args/device_comm.h"
#include "kernels/layout.h"
#include "kernels/protocol/kernel_jitter.cuh"
#include "kernels/warp/lanes.cuh"

enum { PIECE_BYTES = 4096, SHARE_QUANTUM = 512 };

/* The part of one rank's rows that all blocks move in a round. */
struct copy {
    const char *from;
    char *to;
    int64_t bytes;
};

/* Copies in the order of their lengths, which share turns: in each, every copy that still has a
 * piece moves one. In shared memory. */
struct turns {
    int32_t num;                           /* copies */
    int32_t copy[EPX_MOST_DEVICE_RANKS];   /* the i-th in that order, a rank */
    int64_t pieces[EPX_MOST_DEVICE_RANKS]; /* that it has */
    int64_t ends[EPX_MOST_DEVICE_RANKS];   /* pieces of all copies up to its last turn */
};

/* What a team claims from, and the pieces that were claimed there before. */
struct claimed {
    uint64_t *counter;
    int64_t before;
};

static __device__ __forceinline__ int64_t pieces_of(const struct copy &copy)
{
    return (copy.bytes + PIECE_BYTES - 1) / PIECE_BYTES;
}

/* The whole block, in which the caller numbers the threads: each of the first `num` finds the place
 * of its copy, of those of so many ranks from the first-th on. Complete after the next barrier of
 * the block. */
static __device__ void find_turns(const struct copy *copies, int32_t num_ranks, int32_t first,
                                  int32_t num, int32_t thread, struct turns &turns)
{
    if (thread == 0)
        turns.num = num;
    for (int32_t i = thread; i < num; i += (int32_t)blockDim.x) {
        const int64_t mine = pieces_of(copies[(first + i) % num_ranks]);
        int32_t place = 0;
        int64_t end = 0;

        for (int32_t j = 0; j < num; j++) {
            const int64_t other = pieces_of(copies[(first + j) % num_ranks]);

            place += other < mine || (other == mine && j < i);
            end += other < mine ? other : mine;
        }
        turns.copy[place] = (first + i) % num_ranks;
        turns.pieces[place] = mine;
        turns.ends[place] = end;
    }
}

static __device__ __forceinline__ int64_t num_pieces(const struct turns &turns)
{
    return turns.num ? turns.ends[turns.num - 1] : 0;
}

/* A piece of a copy. */
struct turn {
    int32_t copy;
    int64_t piece;
};

/* The i-th piece of all; before the given place no copy is long enough to have it. */
static __device__ __forceinline__ struct turn turn_at(const struct turns &turns, int64_t i,
                                                      int32_t &place)
{
    while (i >= turns.ends[place])
        place++;
    const int32_t left = turns.num - place;
    const int64_t at = i - (place ? turns.ends[place - 1] : 0);
    const int64_t first = place ? turns.pieces[place - 1] : 0;

    return {turns.copy[place + at % left], first + at / left};
}

/* One warp: copies bytes, where both addresses and the number of bytes are multiples of a unit. */
template <typename Unit>
static __device__ void copy_units(const char *from, char *to, int32_t bytes)
{
    const int32_t BATCH = 8; /* loads under way at once */
    int32_t units = bytes / (int32_t)sizeof(Unit), i = lane_id();
    const Unit *source = (const Unit *)(const void *)from;
    Unit *target = (Unit *)(void *)to;

#pragma unroll 1
    for (; i + (BATCH - 1) * EPX_WARP < units; i += BATCH * EPX_WARP) {
        Unit data[BATCH];

#pragma unroll
        for (int32_t j = 0; j < BATCH; j++)
            data[j] = source[i + j * EPX_WARP];
#pragma unroll
        for (int32_t j = 0; j < BATCH; j++)
            target[i + j * EPX_WARP] = data[j];
    }
#pragma unroll 4
    for (; i < units; i += EPX_WARP)
        target[i] = source[i];
}

/* One warp: copies bytes of any alignment. */
static __device__ __noinline__ void copy_bytes(const char *from, char *to, int32_t bytes)
{
    uint32_t odd = (uint32_t)(uintptr_t)from | (uint32_t)(uintptr_t)to | (uint32_t)bytes;

    if (odd % 16 == 0)
        copy_units<uint4>(from, to, bytes);
    else if (odd % 4 == 0)
        copy_units<uint32_t>(from, to, bytes);
    else if (odd % 2 == 0)
        copy_units<uint16_t>(from, to, bytes);
    else
        copy_units<uint8_t>(from, to, bytes);
}

/* Warps of every block, from the first-th on. Neighbours are in different blocks. */
static __device__ __forceinline__ struct crew team_of(int32_t first, int32_t warps)
{
    const int32_t warp = (int32_t)threadIdx.x / EPX_WARP - first, blocks = (int32_t)gridDim.x;

    return {warp * blocks + (int32_t)blockIdx.x, warps * blocks};
}

/* A team: moves all pieces of copies. */
static __device__ void copy_in_turns(const struct epx_device_comm &c, const struct copy *copies,
                                     const struct turns &turns, const struct crew &team,
                                     const struct claimed &claimed)
{
    const int64_t num = num_pieces(turns), first = team.num - claimed.before;
    int64_t i = team.warp;
    int32_t place = 0;

    while (i < num) {
        const struct turn turn = turn_at(turns, i, place);
        const struct copy &copy = copies[turn.copy];
        const int64_t at = turn.piece * PIECE_BYTES, left = copy.bytes - at;
        unsigned long long next = 0;

        EPX_DELAY(c);
        if (lane_id() == 0)
            next = atomicAdd((unsigned long long *)claimed.counter, 1ULL);
        copy_bytes(copy.from + at, copy.to + at,
                   (int32_t)(left < PIECE_BYTES ? left : PIECE_BYTES));
        i = first + (int64_t)__shfl_sync(~0u, next, 0);
    }
}

/* A team: moves a short copy, in equal shares of at least SHARE_QUANTUM bytes; the last warps may
 * have none. */
static __device__ void copy_in_shares(const struct copy &copy, const struct crew &team)
{
    const int64_t share = epx_round_up((copy.bytes + team.num - 1) / team.num, SHARE_QUANTUM);
    const int64_t at = team.warp * share, left = copy.bytes - at;

    if (left > 0)
        copy_bytes(copy.from + at, copy.to + at, (int32_t)(left < share ? left : share));
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* row_steps.cuh - what the exact exchanges of rows among all ranks, and along the edges of a graph,
 * share where ranks store into each other's memory. */
#ifndef EPX_KERNELS_ALLTOALLV_ROW_STEPS_CUH
#define EPX_KERNELS_ALLTOALLV_ROW_STEPS_CUH

#include "kernels/alltoallv/count_checks.cuh"
#include "kernels/alltoallv/piece_turns.cuh"
#include "kernels/alltoallv/row_packets.cuh"
#include "kernels/protocol/protocol.cuh"

enum { NUM_WARPS = EPX_WAITING_THREADS / EPX_WARP };

static __device__ __forceinline__ bool is_packed(const struct epx_alltoallv_rows &a, int64_t rows)
{
    return rows <= a.packed_rows;
}

/* The first block tells the other ranks that this one is ready, and the last one tells them counts;
 * the middle one has less to do. */
static __device__ __forceinline__ bool is_middle_block()
{
    return blockIdx.x == gridDim.x / 2;
}

/* Whether this thread is in the given warp: warps do different things until the block meets. */
static __device__ __forceinline__ bool is_warp(int32_t number)
{
    return (int32_t)threadIdx.x / EPX_WARP == number;
}

/* How many lanes of a warp have a rank each, or an edge, from the first-th one on. */
static __device__ __forceinline__ int32_t lanes_from(int32_t num_ranks, int32_t first)
{
    return num_ranks - first < EPX_WARP ? num_ranks - first : EPX_WARP;
}

/* One warp, of which so many lanes have a rank: lists the packets of each lane's rank, behind `num`
 * packets and those of lower lanes. Returns how many packets there are then. */
static __device__ int32_t list_packets(struct packet_list &list, int32_t rank, int32_t lanes,
                                       int32_t num, const struct rows_in_packets &packed)
{
    const int32_t through = (int32_t)scan_capped(packets_for(packed.bytes), lanes);

    if (lane_id() < lanes) {
        list.rows[rank] = packed.rows;
        list.packets[rank] = packed.packets;
        list.bytes[rank] = packed.bytes;
        list.first[rank + 1] = num + through;
    }
    return num + __shfl_sync(~0u, through, lanes - 1);
}

/* Whether the source is in another operation, which posts no counts. */
static __device__ EPX_COLD bool is_elsewhere(const struct epx_alltoallv_rows &a,
                                             const struct exchange &x, int32_t source)
{
    uint64_t verb = load_relaxed_sys(
        epx_control_ready(a.comm.own_control, a.comm.num_ranks, (uint32_t)x.epoch, source) +
        EPX_READY_VERB);

    return verb >> 32 == (uint32_t)x.epoch && (uint32_t)verb != a.note.word[EPX_READY_VERB];
}

/* Posts a number in two words, each with the operation's tag, by a thread for each: the low half is
 * half 0. */
static __device__ __forceinline__ void post_half(const struct epx_device_comm &c, uint64_t *words,
                                                 int32_t half, uint64_t tag, uint64_t number)
{
    EPX_DELAY(c);
    store_relaxed_sys(words + half, tag | (uint32_t)(half ? number >> 32 : number));
}

/* Waits for a number of a rank in two words. Whether it came, or never will because the rank is in
 * another operation: await_ready then finds out which. */
static __device__ bool await_number_of(const struct epx_alltoallv_rows &a, const struct exchange &x,
                                       int32_t source, const uint64_t *words, int64_t *number)
{
    uint64_t tag = tag_of(x.epoch);
    struct patience patience = {0, 0};
    struct packet packet;

    while (!has_tag(packet = load_packet(words), tag))
        if (is_elsewhere(a, x, source))
            return true;
        else if (!keep_waiting(a.comm, patience, source))
            return false;
    *number = (int64_t)((uint64_t)(uint32_t)packet.high << 32 | (uint32_t)packet.low);
    return true;
}

/* How far the bank of an operation lies behind bank 0. */
static __device__ __forceinline__ int64_t bank_of(const struct epx_alltoallv_rows &a,
                                                  const struct exchange &x)
{
    return x.epoch % 2 ? a.comm.num_ranks * a.packet_words : 0;
}

/* How much of what goes through a stage a round moves, from byte `at` on, a share each round. */
static __device__ __forceinline__ int64_t bytes_in_round(int64_t bytes, int64_t share, int64_t at)
{
    int64_t left = bytes - at;

    return left < 0 ? 0 : left < share ? left : share;
}

/* The whole block: moves copies that its threads have just listed, with all blocks. */
static __device__ __forceinline__ void copy_all(const struct epx_device_comm &c,
                                                const struct copy *copies, int32_t num,
                                                struct turns &turns, struct claimed &claimed)
{
    __syncthreads();
    find_turns(copies, num, 0, num, (int32_t)threadIdx.x, turns);
    __syncthreads();
    copy_in_turns(c, copies, turns, team_of(0, NUM_WARPS), claimed);
    claimed.before += num_pieces(turns);
}

/* The whole block: moves rows in rounds, in which it sends and then takes what came. Between the
 * rounds it waits for all ranks. */
template <typename Send, typename Take>
static __device__ __forceinline__ void store_in_rounds(const struct epx_alltoallv_rows &a,
                                                       struct exchange &x, int64_t rounds,
                                                       Send send, Take take)
{
    for (int64_t i = 0; i < rounds; i++) {
        if (i && !await_credits(a.comm, x, (uint64_t)i))
            break;
        send(i);
        signal_arrival(a.comm);
        if (!await_arrivals(a.comm, x, (uint64_t)i + 1))
            break;
        take(i);
        if (i + 1 < rounds)
            signal_credit(a.comm);
    }
}

#endif

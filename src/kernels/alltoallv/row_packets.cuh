/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * row_packets.cuh - few rows in one hop: every four bytes travel with a tag of their operation in
 * one word, so that the receiver needs no flag and no fence behind them. Packets are twice the
 * bytes but half the way. The idea comes from NCCL's LL protocol.
 */
#ifndef EPX_KERNELS_ALLTOALLV_ROW_PACKETS_CUH
#define EPX_KERNELS_ALLTOALLV_ROW_PACKETS_CUH

#include "kernels/protocol/waits.cuh"

enum { SHORT_PACKET_BYTES = 8, PACKET_BATCH = 4 };

struct packet {
    uint64_t low, high; /* tag << 32 | four bytes */
};

/* The rows of one rank that go in packets. */
struct rows_in_packets {
    char *rows;        /* where they come from, or go to */
    uint64_t *packets; /* in bank 0 */
    int64_t bytes;
};

/* Packets to or from each rank, or along each edge, one behind the other; in shared memory. An
 * operation has them in the bank of its number, which lies so many words behind bank 0. */
struct packet_list {
    char *rows[EPX_MOST_DEVICE_RANKS];        /* where they come from, or go to */
    uint64_t *packets[EPX_MOST_DEVICE_RANKS]; /* in bank 0 */
    int64_t bytes[EPX_MOST_DEVICE_RANKS];
    int32_t first[EPX_MOST_DEVICE_RANKS + 1];
};

/* A tag is never 0, which is what memory that was not written to holds. */
static __device__ __forceinline__ uint64_t tag_of(uint64_t epoch)
{
    return (epoch % 0xffffffffu + 1) << 32;
}

static __device__ __forceinline__ void store_short_packet(uint64_t *to, uint64_t tag,
                                                          uint64_t bytes)
{
    store_two_relaxed_sys(to, tag | (uint32_t)bytes, tag | bytes >> 32);
}

static __device__ __forceinline__ struct packet load_packet(const uint64_t *from)
{
    struct packet packet;

    load_two_relaxed_sys(from, packet.low, packet.high);
    return packet;
}

static __device__ __forceinline__ bool has_tag(const struct packet &packet, uint64_t tag)
{
    return ((packet.low ^ tag) | (packet.high ^ tag)) >> 32 == 0;
}

static __device__ EPX_COLD uint64_t read_some(const char *from, int64_t num)
{
    uint64_t bytes = 0;

    for (int32_t i = 0; i < SHORT_PACKET_BYTES && i < num; i++)
        bytes |= (uint64_t)(uint8_t)from[i] << 8 * i;
    return bytes;
}

static __device__ EPX_COLD void write_some(char *to, int64_t num, uint64_t bytes)
{
    for (int32_t i = 0; i < SHORT_PACKET_BYTES && i < num; i++)
        to[i] = (char)(bytes >> 8 * i);
}

/* Reads at most eight bytes. */
static __device__ __forceinline__ uint64_t read_bytes(const char *from, int64_t num)
{
    if (num >= SHORT_PACKET_BYTES && (uintptr_t)from % SHORT_PACKET_BYTES == 0)
        return *(const uint64_t *)(const void *)from;
    return read_some(from, num);
}

static __device__ __forceinline__ void write_bytes(char *to, int64_t num, uint64_t bytes)
{
    if (num >= SHORT_PACKET_BYTES && (uintptr_t)to % SHORT_PACKET_BYTES == 0)
        *(uint64_t *)(void *)to = bytes;
    else
        write_some(to, num, bytes);
}

static __device__ __forceinline__ int32_t packets_for(int64_t bytes)
{
    return (int32_t)((bytes + SHORT_PACKET_BYTES - 1) / SHORT_PACKET_BYTES);
}

/* The rank of the i-th packet, looked for from the given rank on. */
static __device__ __forceinline__ int32_t rank_of_packet(const struct packet_list &list, int32_t i,
                                                         int32_t rank)
{
    while (i >= list.first[rank + 1])
        rank++;
    return rank;
}

static __device__ void send_packets(const struct packet_list &list, int32_t num_ranks,
                                    uint64_t epoch, int64_t bank, const struct crew &crew)
{
    int32_t threads = crew.num * EPX_WARP, num = list.first[num_ranks], rank = 0;

    for (int32_t start = crew.warp * EPX_WARP + lane_id(); start < num;
         start += threads * PACKET_BATCH) {
        uint64_t bytes[PACKET_BATCH], *to[PACKET_BATCH];

#pragma unroll
        for (int32_t j = 0; j < PACKET_BATCH; j++) {
            int32_t i = start + j * threads;
            int64_t at;

            to[j] = NULL;
            if (i >= num)
                continue;
            rank = rank_of_packet(list, i, rank);
            at = i - list.first[rank];
            to[j] = list.packets[rank] + bank + 2 * at;
            bytes[j] = read_bytes(list.rows[rank] + at * SHORT_PACKET_BYTES,
                                  list.bytes[rank] - at * SHORT_PACKET_BYTES);
        }
#pragma unroll
        for (int32_t j = 0; j < PACKET_BATCH; j++)
            if (to[j])
                store_short_packet(to[j], tag_of(epoch), bytes[j]);
    }
}

/* Whether the packet came; if not the operation was given up. */
static __device__ bool await_packet(const struct epx_device_comm &c, const uint64_t *from,
                                    uint64_t tag, int32_t source, struct packet &packet)
{
    struct patience patience = {0, 0};

    while (!has_tag(packet, tag)) {
        if (!keep_waiting(c, patience, source))
            return false;
        packet = load_packet(from);
    }
    return true;
}

/* Who packets come from where the list has an entry for each rank. */
struct every_rank {
    int32_t num;

    __device__ __forceinline__ int32_t rank(int32_t entry) const
    {
        return entry;
    }
};

/* sources: how many entries the list has, and which rank each comes from. */
template <typename Sources>
static __device__ bool take_packets(const struct epx_device_comm &c, const struct packet_list &list,
                                    const Sources &sources, uint64_t epoch, int64_t bank,
                                    const struct crew &crew)
{
    int32_t threads = crew.num * EPX_WARP, num = list.first[sources.num];
    uint64_t tag = tag_of(epoch);
    bool ok = true;

    for (int32_t start = crew.warp * EPX_WARP + lane_id(), first_source = 0; ok && start < num;
         start += threads * PACKET_BATCH) {
        struct packet packet[PACKET_BATCH];
        int32_t source = first_source = rank_of_packet(list, start, first_source);

#pragma unroll
        for (int32_t j = 0; j < PACKET_BATCH; j++) {
            int32_t i = start + j * threads;

            if (i >= num)
                continue;
            source = rank_of_packet(list, i, source);
            packet[j] =
                load_packet(list.packets[source] + bank + 2 * (int64_t)(i - list.first[source]));
        }
        source = first_source;
#pragma unroll
        for (int32_t j = 0; j < PACKET_BATCH; j++) {
            int32_t i = start + j * threads;
            int64_t at;

            if (!ok || i >= num)
                continue;
            source = rank_of_packet(list, i, source);
            at = i - list.first[source];
            ok = await_packet(c, list.packets[source] + bank + 2 * at, tag, sources.rank(source),
                              packet[j]);
            if (ok)
                write_bytes(list.rows[source] + at * SHORT_PACKET_BYTES,
                            list.bytes[source] - at * SHORT_PACKET_BYTES,
                            (uint32_t)packet[j].low | packet[j].high << 32);
        }
    }
    return ok;
}

#endif

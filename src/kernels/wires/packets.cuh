/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packets.cuh - short operations in one hop: 12 bytes of a row travel with a tag of their
 * operation in one store of 16 bytes. So who takes them needs no flag, and who sends them no fence,
 * which would wait for an answer from the other GPU. Packets take a third more of the wire, or,
 * where a slice is shorter than a stripe, up to twice as much.
 *
 *   packets   at the end of each bank, where nothing else is stored, so that no older bytes pass
 *             for a tag: [row][slice][stripe][packet of lane][lane]; behind the slices of a row a
 *             packet for each of the words that go with it, if there are any
 *   tag       of the operation, never 0, which is what memory holds that nothing was stored to.
 *             In a bank one is older by 2 or more; it would be the same again after 2 * (2^32 - 1)
 *             operations none of which sent this packet.
 *
 * A stripe of fewer packs than lanes times EPX_LANE_PACKS has as many packets a lane as its packs
 * take. Every lane loads what the same lane stored, so packs are put together without exchanges
 * between lanes.
 * Invariants and two banks: banks.cuh. The idea is that of NCCL's LL protocols.
 */
#ifndef EPX_KERNELS_WIRES_PACKETS_CUH
#define EPX_KERNELS_WIRES_PACKETS_CUH

#include "kernels/protocol/waits.cuh"
#include "kernels/warp/pack_types.cuh"
#include "kernels/wires/wire.cuh"

enum { STRIPE_PACKS = EPX_LANE_PACKS * EPX_WARP, PACKET_BYTES = 16 };

static __device__ __forceinline__ uint32_t packet_tag(uint64_t epoch)
{
    return (uint32_t)(epoch % 0xffffffffu) + 1;
}

/* How many packs of a stripe a lane has, of so many that there are from the stripe on. */
static __device__ __forceinline__ int32_t packs_of_lane(int64_t packs)
{
    const int64_t num = (packs - lane_id() + EPX_WARP - 1) / EPX_WARP;

    return (int32_t)(num < 0 ? 0 : num < EPX_LANE_PACKS ? num : EPX_LANE_PACKS);
}

static __device__ __forceinline__ void store_packet(char *to, uint32_t a, uint32_t b, uint32_t c,
                                                    uint32_t tag)
{
    store_packet_sys(to, a | (uint64_t)b << 32, c | (uint64_t)tag << 32);
}

/* Each lane stores its packs of a stripe. */
static __device__ __forceinline__ void store_stripe(char *packets, const uint4 pack[EPX_LANE_PACKS],
                                                    int32_t num, uint32_t tag)
{
    char *to = packets + lane_id() * PACKET_BYTES;
    const int64_t next = EPX_WARP * PACKET_BYTES;

    if (num > 0) {
        store_packet(to, pack[0].x, pack[0].y, pack[0].z, tag);
        store_packet(to + next, pack[0].w, pack[1].x, pack[1].y, tag);
    }
    if (num > 1)
        store_packet(to + 2 * next, pack[1].z, pack[1].w, pack[2].x, tag);
    if (num > 2)
        store_packet(to + 3 * next, pack[2].y, pack[2].z, pack[2].w, tag);
}

/* What a lane loads at once. */
struct lane_packets {
    uint64_t low[EPX_LANE_PACKETS], high[EPX_LANE_PACKETS];
};

/* Each lane: loads the packets of its packs; returns whether all have the tag. */
static __device__ __forceinline__ bool load_stripe(const char *packets, int32_t num, uint32_t tag,
                                                   struct lane_packets &loaded)
{
    const char *from = packets + lane_id() * PACKET_BYTES;
    bool come = true;

#pragma unroll
    for (int j = 0; j < EPX_LANE_PACKETS; j++)
        if (num && j <= num)
            load_packet_sys(from + j * EPX_WARP * PACKET_BYTES, loaded.low[j], loaded.high[j]);
#pragma unroll
    for (int j = 0; j < EPX_LANE_PACKETS; j++)
        come = come && (!num || j > num || (uint32_t)(loaded.high[j] >> 32) == tag);
    return come;
}

/* Packets that come from a rank. */
struct packet_run {
    char *packets; /* of the next stripe */
    uint32_t tag;
    int32_t rank;
};

/* The whole warp: waits for the packets of a stripe and puts the packs of each lane together.
 * Returns whether all came; if not the operation was given up. */
static __device__ __forceinline__ bool take_stripe(const struct epx_device_comm &c,
                                                   const struct packet_run &from, int32_t num,
                                                   uint4 pack[EPX_LANE_PACKS])
{
    struct patience patience = {0, 0};
    struct lane_packets p = {{0}, {0}};
    bool ok = true;

    EPX_DELAY(c);
    while (ok && !load_stripe(from.packets, num, from.tag, p))
        ok = keep_waiting(c, patience, from.rank);
    pack[0] = make_uint4((uint32_t)p.low[0], (uint32_t)(p.low[0] >> 32), (uint32_t)p.high[0],
                         (uint32_t)p.low[1]);
    pack[1] = make_uint4((uint32_t)(p.low[1] >> 32), (uint32_t)p.high[1], (uint32_t)p.low[2],
                         (uint32_t)(p.low[2] >> 32));
    pack[2] = make_uint4((uint32_t)p.high[2], (uint32_t)p.low[3], (uint32_t)(p.low[3] >> 32),
                         (uint32_t)p.high[3]);
    return __all_sync(~0u, ok);
}

/* The whole warp: waits for one of each lane's packs of a stripe, the j-th, which is in two
 * packets. Returns whether all came. */
static __device__ __forceinline__ bool take_pack(const struct epx_device_comm &c,
                                                 const struct packet_run &from, int32_t j,
                                                 bool is_in, uint4 &pack)
{
    const char *packet = from.packets + (j * EPX_WARP + lane_id()) * PACKET_BYTES;
    uint64_t low[2] = {0, 0}, high[2] = {0, 0};
    struct patience patience = {0, 0};
    uint32_t word[6];
    bool ok = true;

    EPX_DELAY(c);
    while (ok && is_in) {
        load_packet_sys(packet, low[0], high[0]);
        load_packet_sys(packet + EPX_WARP * PACKET_BYTES, low[1], high[1]);
        if ((uint32_t)(high[0] >> 32) == from.tag && (uint32_t)(high[1] >> 32) == from.tag)
            break;
        ok = keep_waiting(c, patience, from.rank);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        word[3 * i] = (uint32_t)low[i];
        word[3 * i + 1] = (uint32_t)(low[i] >> 32);
        word[3 * i + 2] = (uint32_t)high[i];
    }
    pack = j == 0   ? make_uint4(word[0], word[1], word[2], word[3])
           : j == 1 ? make_uint4(word[1], word[2], word[3], word[4])
                    : make_uint4(word[2], word[3], word[4], word[5]);
    return __all_sync(~0u, ok);
}

/* 16 bytes from anywhere on. */
static __device__ uint4 read_odd_pack(const char *from)
{
    uint32_t word[4];

    for (int i = 0; i < 4; i++, from += 4)
        word[i] = (uint32_t)(uint8_t)from[0] | (uint32_t)(uint8_t)from[1] << 8 |
                  (uint32_t)(uint8_t)from[2] << 16 | (uint32_t)(uint8_t)from[3] << 24;
    return make_uint4(word[0], word[1], word[2], word[3]);
}

static __device__ void write_odd_pack(char *to, uint4 pack)
{
    const uint32_t word[4] = {pack.x, pack.y, pack.z, pack.w};

    for (int i = 0; i < 16; i++)
        to[i] = (char)(word[i / 4] >> i % 4 * 8);
}

/* The whole warp: sends packs of a row from memory to the packets of a slice in several banks. */
template <bool ODD>
static __device__ __forceinline__ void send_packs_from(const char *from, int64_t packs,
                                                       const struct row_list &to, int32_t num,
                                                       uint32_t tag)
{
    int64_t at = 0;

#pragma unroll 1
    for (int64_t first = 0; first < packs; first += STRIPE_PACKS) {
        const int32_t mine = packs_of_lane(packs - first);
        uint4 pack[EPX_LANE_PACKS] = {};

#pragma unroll
        for (int j = 0; j < EPX_LANE_PACKS; j++) {
            const char *place = from + (first + j * EPX_WARP + lane_id()) * 16;

            if (j < mine)
                pack[j] = ODD ? read_odd_pack(place) : *(const uint4 *)(const void *)place;
        }
#pragma unroll 1
        for (int32_t p = 0; p < num; p++)
            store_stripe(to.row[p] + at, pack, mine, tag);
        at += EPX_STRIPE_PACKETS * PACKET_BYTES;
    }
}

static __device__ EPX_COLD void send_odd_packs(const char *from, int64_t packs,
                                               const struct row_list &to, int32_t num, uint32_t tag)
{
    send_packs_from<true>(from, packs, to, num, tag);
}

static __device__ __forceinline__ void
send_packs(const char *from, int64_t packs, const struct row_list &to, int32_t num, uint32_t tag)
{
    if (misalignment(from))
        send_odd_packs(from, packs, to, num, tag);
    else
        send_packs_from<false>(from, packs, to, num, tag);
}

/* The whole warp: stores packs of a row, as their packets come, to several places. Returns whether
 * all came. */
template <bool ODD>
static __device__ __forceinline__ bool spread_packs_to(const struct epx_device_comm &c,
                                                       struct packet_run from, int64_t packs,
                                                       const struct row_list &to, int32_t num)
{
#pragma unroll 1
    for (int64_t first = 0; first < packs; first += STRIPE_PACKS) {
        const int32_t mine = packs_of_lane(packs - first);
        uint4 pack[EPX_LANE_PACKS];

        if (!take_stripe(c, from, mine, pack))
            return false;
#pragma unroll 1
        for (int32_t p = 0; p < num; p++)
#pragma unroll
            for (int j = 0; j < EPX_LANE_PACKS; j++) {
                char *place = to.row[p] + (first + j * EPX_WARP + lane_id()) * 16;

                if (j < mine && ODD)
                    write_odd_pack(place, pack[j]);
                else if (j < mine)
                    *(uint4 *)(void *)place = pack[j];
            }
        from.packets += EPX_STRIPE_PACKETS * PACKET_BYTES;
    }
    return true;
}

static __device__ EPX_COLD bool spread_odd_packs(const struct epx_device_comm &c,
                                                 const struct packet_run &from, int64_t packs,
                                                 const struct row_list &to, int32_t num)
{
    return spread_packs_to<true>(c, from, packs, to, num);
}

static __device__ __forceinline__ bool spread_packs(const struct epx_device_comm &c,
                                                    const struct packet_run &from, int64_t packs,
                                                    const struct row_list &to, int32_t num)
{
    return list_misalignment(to, num) ? spread_odd_packs(c, from, packs, to, num)
                                      : spread_packs_to<false>(c, from, packs, to, num);
}

struct packet_wire {
    static constexpr bool TELLS = false;

    static __device__ __forceinline__ struct stamp stamp_of(uint64_t epoch)
    {
        return {packet_tag(epoch)};
    }

    static __device__ __forceinline__ char *place(const struct bank_slice &at)
    {
        const int64_t packet = at.row * at.banks.row_packets +
                               at.slice * at.banks.stripes * (int64_t)EPX_STRIPE_PACKETS;

        return at.bank + at.banks.packets_at + packet * PACKET_BYTES;
    }

    /* The packet of a word that goes with a row: behind its slices. */
    static __device__ __forceinline__ char *place_of_word(const struct bank_slice &at, int32_t word)
    {
        return place({at.banks, at.bank, at.row, at.banks.slices.num}) +
               (int64_t)word * PACKET_BYTES;
    }

    static __device__ __forceinline__ void send_copy(const char *from, int64_t bytes,
                                                     const struct row_list &places, int32_t num,
                                                     struct stamp stamp)
    {
        send_packs(from, bytes / 16, places, num, (uint32_t)stamp.value);
    }

    static __device__ __forceinline__ void send_word(const struct bank_slice &to, int32_t word,
                                                     float value, struct stamp stamp)
    {
        store_packet(place_of_word(to, word), __float_as_uint(value), 0, 0, (uint32_t)stamp.value);
    }

    static __device__ __forceinline__ void tell(const struct epx_device_comm &,
                                                const struct bank_slice &, struct stamp)
    {
    }

    static __device__ __forceinline__ struct packet_run run_of(const struct coming_slice &from)
    {
        return {place(from.at), (uint32_t)from.stamp.value, from.source};
    }

    static __device__ __forceinline__ bool spread(const struct epx_device_comm &c,
                                                  const struct coming_slice &from, int64_t bytes,
                                                  const struct row_list &places, int32_t num)
    {
        return spread_packs(c, run_of(from), bytes / 16, places, num);
    }

    static __device__ bool take_word(const struct epx_device_comm &c,
                                     const struct coming_slice &from, int32_t word, float &value)
    {
        const char *packet = place_of_word(from.at, word);
        const uint32_t tag = (uint32_t)from.stamp.value;
        struct patience patience = {0, 0};
        uint64_t low, high;

        for (;;) {
            load_packet_sys(packet, low, high);
            if ((uint32_t)(high >> 32) == tag)
                break;
            if (!keep_waiting(c, patience, from.source))
                return false;
        }
        value = __uint_as_float((uint32_t)low);
        return true;
    }
};

template struct checked_wire<struct packet_wire>;

#endif

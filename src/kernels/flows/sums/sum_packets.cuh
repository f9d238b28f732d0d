/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_packets.cuh - sums that travel in packets (packets.cuh): sums of rows into packets, and
 * packets of a token's parts, with this rank's own part between them, into its sum. Order and
 * roundings are those of sum_rows.cuh and own_sums.cuh.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_SUM_PACKETS_CUH
#define EPX_KERNELS_FLOWS_SUMS_SUM_PACKETS_CUH

#include "kernels/flows/sums/own_sums.cuh"
#include "kernels/protocol/ready_words.cuh"
#include "kernels/wires/packets.cuh"

/* Sets one of a lane's packs, by a number that the compiler need not know. */
static __device__ __forceinline__ void put(uint4 pack[EPX_LANE_PACKS], int32_t j, const uint4 &bits)
{
#pragma unroll
    for (int i = 0; i < EPX_LANE_PACKS; i++)
        pack[i] = i == j ? bits : pack[i];
}

/* A pack of the sum of rows, at least one. ODD: they are not aligned, so elements are read one by
 * one. */
template <typename Row, int N, bool WEIGHTED, bool ODD>
static __device__ __forceinline__ void add_pack_of_rows(const struct row_list &list, int32_t num,
                                                        int64_t at, typename Row::sum sum[1][N])
{
    if (!ODD)
        add_run<Row, N, WEIGHTED, 1, MOST_SUM_ROWS>(list, 0, num, aligned_packs{at}, sum);
#pragma unroll
    for (int n = 0; ODD && n < N; n++) {
        typename Row::sum element[1][1];

        add_run<Row, 1, WEIGHTED, 1, 1>(list, 0, num, aligned_packs{at * N + n}, element);
        sum[0][n] = element[0][0];
    }
}

/* The whole warp: packs of the sum of rows, at least one, into the packets of a slice. */
template <typename T, bool WEIGHTED, bool ODD>
static __device__ __forceinline__ void send_sum_packs(const struct row_list &list, int32_t num,
                                                      int64_t packs, char *to, uint32_t tag)
{
    typedef typename T::row Row;
    typedef typename T::part Part;
    const int N = 16 / sizeof(Part);

#pragma unroll 1
    for (int64_t first = 0; first < packs; first += STRIPE_PACKS) {
        const int32_t mine = packs_of_lane(packs - first);
        uint4 out[EPX_LANE_PACKS] = {};

#pragma unroll 1
        for (int32_t j = 0; j < mine; j++) {
            typename Row::sum sum[1][N];
            pack<Part, N> rounded;

            add_pack_of_rows<Row, N, WEIGHTED, ODD>(list, num, first + j * EPX_WARP + lane_id(),
                                                    sum);
            round_pack(sum[0], rounded);
            put(out, j, bits_of(rounded));
        }
        store_stripe(to, out, mine, tag);
        to += EPX_STRIPE_PACKETS * PACKET_BYTES;
    }
}

template <typename T>
static __device__ EPX_COLD void send_odd_sum(const struct row_list &list, int32_t num,
                                             bool weighted, int64_t packs, char *to, uint32_t tag)
{
    if (weighted)
        send_sum_packs<T, true, true>(list, num, packs, to, tag);
    else
        send_sum_packs<T, false, true>(list, num, packs, to, tag);
}

/* The bits that must not be set in addresses of rows that are read and written 16 bytes, as they
 * travel, at a time. */
template <typename T>
static constexpr uint32_t PACK_BITS = 16 / sizeof(typename T::part) * sizeof(typename T::row) - 1;

template <typename T>
static __device__ __forceinline__ void send_packed_sum(const struct row_list &list, int32_t num,
                                                       bool weighted, int64_t packs, char *to,
                                                       uint32_t tag)
{
    if (list_misalignment(list, num) & PACK_BITS<T>)
        send_odd_sum<T>(list, num, weighted, packs, to, tag);
    else if (weighted)
        send_sum_packs<T, true, false>(list, num, packs, to, tag);
    else
        send_sum_packs<T, false, false>(list, num, packs, to, tag);
}

/* A pack of each lane. */
struct lane_pack {
    int64_t first; /* pack of the row that its stripe begins with */
    int32_t num;   /* packs of the stripe that the lane has */
    int32_t j;     /* which of them */
};

/* Parts of a token that come in packets. Of each part of the list `row` has the packets of a slice
 * and `node` the rank. */
struct coming_parts {
    const struct epx_device_comm &c;
    const struct sum_list &list;
    uint32_t tag;

    /* The whole warp: waits for a pack of a part. */
    __device__ __forceinline__ bool take(int32_t part, const struct lane_pack &at,
                                         uint4 &pack) const
    {
        const int64_t stripe = at.first / STRIPE_PACKS;
        const struct packet_run from = {list.parts.row[part] +
                                            stripe * EPX_STRIPE_PACKETS * PACKET_BYTES,
                                        tag, list.parts.node[part]};

        return take_pack(c, from, at.j, at.j < at.num, pack);
    }
};

/* Adds a lane's pack of the own part, rounded. */
template <typename T, int N>
static __device__ __forceinline__ void add_own(const typename T::row::sum own[N], bool starts,
                                               typename T::part::sum total[N])
{
    typedef typename T::part Part;

#pragma unroll
    for (int n = 0; n < N; n++) {
        typename Part::sum term = Part::load(Part::store(own[n]));

        total[n] = starts ? term : add(total[n], term);
    }
}

/* The whole warp: adds a pack of each lane and stores the sum; of no parts it is 0. The own part is
 * summed first, beside the time that parts and the verdict are on their way. */
template <typename T, bool WEIGHTED, bool ODD>
static __device__ __forceinline__ bool add_coming_pack(const struct coming_parts &parts,
                                                       const struct lane_pack &at, char *out,
                                                       struct verdict &verdict)
{
    typedef typename T::part Part;
    typedef typename T::row Row;
    const int N = 16 / sizeof(Part);
    const struct sum_list &list = parts.list;
    const int64_t place = at.first + lane_id() + at.j * EPX_WARP;
    const bool is_in = at.j < at.num, own_starts = list.num_own && list.own_place == 0;
    typename Part::sum total[1][N] = {};
    typename Row::sum own[1][N] = {};

    if (list.num_own && is_in)
        add_pack_of_rows<Row, N, WEIGHTED, ODD>(list.own, list.num_own, place, own);
    if (!verdict())
        return false;
#pragma unroll 1
    for (int32_t p = 0; p <= list.num_parts; p++) {
        pack<Part, N> data;
        uint4 bits;

        if (list.num_own && p == list.own_place)
            add_own<T, N>(own[0], own_starts, total[0]);
        if (p == list.num_parts)
            break;
        if (!parts.take(p, at, bits))
            return false;
        memcpy(&data, &bits, sizeof(data));
        add_pack<Part, N, false>(data, 1, p == 0 && !own_starts, total[0]);
    }
    if (is_in && !ODD)
        store_packs<Row, N, 1>(total, aligned_packs{place}, out);
#pragma unroll
    for (int n = 0; ODD && is_in && n < N; n++)
        ((Row *)(void *)out)[place * N + n] = Row::store(total[0][n]);
    return true;
}

template <typename T, bool WEIGHTED, bool ODD>
static __device__ __forceinline__ bool add_coming_packs(const struct coming_parts &parts,
                                                        int64_t packs, char *out,
                                                        struct verdict &verdict)
{
#pragma unroll 1
    for (int64_t at = 0; at < packs; at += EPX_WARP) {
        const int64_t first = at / STRIPE_PACKS * STRIPE_PACKS;
        const struct lane_pack lane = {first, packs_of_lane(packs - first),
                                       (int32_t)(at - first) / EPX_WARP};

        if (!add_coming_pack<T, WEIGHTED, ODD>(parts, lane, out, verdict))
            return false;
    }
    return true;
}

template <typename T>
static __device__ EPX_COLD bool add_odd_packets(const struct coming_parts &parts, bool weighted,
                                                int64_t packs, char *out, struct verdict &verdict)
{
    return weighted ? add_coming_packs<T, true, true>(parts, packs, out, verdict)
                    : add_coming_packs<T, false, true>(parts, packs, out, verdict);
}

/* The whole warp: out = round(part + part + ...), of so many packs, as they come. Returns whether
 * the ranks agree and all came. */
template <typename T>
static __device__ __forceinline__ bool add_packets(const struct coming_parts &parts, bool weighted,
                                                   int64_t packs, char *out,
                                                   struct verdict &verdict)
{
    const struct sum_list &list = parts.list;

    if ((list_misalignment(list.own, list.num_own) | misalignment(out)) & PACK_BITS<T>)
        return add_odd_packets<T>(parts, weighted, packs, out, verdict);
    return weighted ? add_coming_packs<T, true, false>(parts, packs, out, verdict)
                    : add_coming_packs<T, false, false>(parts, packs, out, verdict);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_rows.cuh - the rows of a small dispatch in banks: a token's row lies in
 * the bank of each rank that needs it at [source][token], so where it lies follows from nothing
 * that a routing finds out. banks.cuh has the protocol.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_SMALL_ROWS_CUH
#define EPX_KERNELS_FLOWS_ROWS_SMALL_ROWS_CUH

#include "kernels/args/row_args.h"
#include "kernels/flows/rows/small_fields.cuh"
#include "kernels/wires/banks.cuh"
#include "kernels/wires/wire.cuh"

/* A slice of a row that comes. */
struct row_slice {
    int32_t source, token, slice;
};

/* The bytes of a slice of a row as it lies in a bank. */
template <bool LIST>
static __device__ __forceinline__ struct part part_of_slice(const struct epx_dispatch_rows &a,
                                                            int32_t slice)
{
    return part_of(a.banks.slices, slice, LIST ? a.banks.words_at : a.row_bytes);
}

/* Where the row of a rank's token lies in a bank. */
static __device__ __forceinline__ int64_t bank_row(const struct epx_dispatch_rows &a,
                                                   int32_t source, int64_t token)
{
    return (int64_t)source * a.plan.shape.max_tokens + token;
}

/* Whether the weights of a row's pairs go with a slice of it. */
static __device__ __forceinline__ bool has_weights(const struct epx_dispatch_rows &a, int32_t slice)
{
    return a.weights && slice == 0 && a.banks.pitch > a.banks.words_at;
}

/* The whole warp, if a token's weights go with a slice: sends them, a lane those of a choice, of
 * which there are not more than lanes, to the bank of every lane that has one. */
template <typename Wire>
static __device__ __forceinline__ void send_weights_of(const struct epx_dispatch_rows &a,
                                                       struct stamp stamp,
                                                       const struct row_slice &at, char *bank)
{
    const int32_t top_k = a.plan.shape.top_k;
    const int64_t row = bank_row(a, at.source, at.token);
    uint32_t lanes = __ballot_sync(~0u, has_weights(a, at.slice) && bank);
    const float weight =
        lanes && lane_id() < top_k ? a.weights[(int64_t)at.token * top_k + lane_id()] : 0;

    for (; lanes; lanes &= lanes - 1) {
        char *to = (char *)__shfl_sync(~0u, (unsigned long long)bank, __ffs((int32_t)lanes) - 1);

        if (lane_id() < top_k)
            Wire::send_word({a.banks, to, row, at.slice}, lane_id(), weight, stamp);
    }
}

/* The whole warp: stores a slice of a token's row into the lanes' banks, NULL = none, and with the
 * first slice, if weights go with rows, those of its pairs. */
template <typename Wire, bool LIST>
static __device__ void send_slice(const struct epx_dispatch_rows &a, struct stamp stamp,
                                  const struct row_slice &at, char *bank, struct row_list &list)
{
    const struct part part = part_of_slice<LIST>(a, at.slice);
    const int64_t row = bank_row(a, at.source, at.token);
    const uint32_t goes = __ballot_sync(~0u, bank != NULL);

    if constexpr (LIST) {
        store_fields(a.fields, part, at.token, bank ? row_in(a.banks, bank, row) : NULL, list);
    } else {
        if (bank)
            list.row[__popc(goes & lanes_below())] = Wire::place({a.banks, bank, row, at.slice});
        __syncwarp();
        Wire::send_copy(a.rows + at.token * a.row_bytes + part.offset, part.bytes, list,
                        __popc(goes), stamp);
    }
    send_weights_of<Wire>(a, stamp, at, bank);
    __syncwarp();
}

/* Slices that a warp stores before it tells of them, behind one fence. */
enum { TOLD_TOGETHER = 4 };

/* The slices of this rank's rows, one token's behind the other's. */
static __device__ __forceinline__ struct row_slice slice_of_task(const struct epx_dispatch_rows &a,
                                                                 uint32_t i)
{
    const uint32_t slices = (uint32_t)a.banks.slices.num;

    return {a.comm.rank, (int32_t)(i / slices), (int32_t)(i % slices)};
}

/* Sends this rank's rows. The whole warp: visit(token, each) calls each() with the bank that every
 * lane's share of the token's ranks has, NULL = none, 32 at a time. */
template <typename Wire, bool LIST, typename Visit>
static __device__ __forceinline__ void
send_slices(const struct epx_dispatch_rows &a, uint64_t epoch, struct row_list &list, Visit visit)
{
    const struct crew crew = crew_of(a.banks);
    const uint32_t all = (uint32_t)(a.num_tokens * a.banks.slices.num);
    const struct stamp stamp = Wire::stamp_of(epoch);
    const uint32_t step = (uint32_t)crew.num * (Wire::TELLS ? TOLD_TOGETHER : 1);

    for (uint32_t first = (uint32_t)crew.warp; first < all; first += step) {
        const uint32_t end = all - first < step ? all : first + step;

        for (uint32_t i = first; i < end; i += (uint32_t)crew.num) {
            const struct row_slice at = slice_of_task(a, i);

            EPX_DELAY(a.comm);
            visit(at.token, [&](char *bank) { send_slice<Wire, LIST>(a, stamp, at, bank, list); });
        }
        if constexpr (Wire::TELLS)
            fence_release_sys();
        for (uint32_t i = first; Wire::TELLS && i < end; i += (uint32_t)crew.num) {
            const struct row_slice at = slice_of_task(a, i);

            visit(at.token, [&](char *bank) {
                if (bank)
                    Wire::tell(a.comm, {a.banks, bank, bank_row(a, at.source, at.token), at.slice},
                               stamp);
            });
        }
    }
}

/* The whole warp: each() is called with the banks of the ranks of a token's list, as send_slices
 * wants it. */
template <typename Each>
static __device__ __forceinline__ void visit_banks(const struct epx_dispatch_rows &a,
                                                   uint64_t epoch, int64_t token, Each each)
{
    const int32_t num = a.plan.token_num[token];

    for (int32_t i = lane_id(); i - lane_id() < num; i += EPX_WARP) {
        int64_t at = token * a.plan.most_rows + i;
        char *bank = NULL;

        if (i < num && a.plan.token_slot[at] >= 0 && a.plan.token_rank[at] != a.comm.rank)
            bank = bank_on(a.comm, a.banks, epoch, a.plan.token_rank[at]);
        each(bank);
    }
}

/* Sends a row for each rank of its token's list. */
template <typename Wire, bool LIST>
static __device__ void send_small_rows(const struct epx_dispatch_rows &a, uint64_t epoch,
                                       struct row_list &list)
{
    send_slices<Wire, LIST>(a, epoch, list,
                            [&](int64_t token, auto each) { visit_banks(a, epoch, token, each); });
}

/* A slice of a row that is this rank's own, or comes from another one. */
static __device__ __forceinline__ struct coming_slice slice_from(const struct epx_dispatch_rows &a,
                                                                 struct stamp stamp, char *bank,
                                                                 const struct row_slice &at)
{
    return {{a.banks, bank, bank_row(a, at.source, at.token), at.slice}, stamp, at.source};
}

/* The whole warp: a slice of a row to the places of the list; of several fields, to the slot that
 * each lane has, -1 = none. Returns whether it came. */
template <typename Wire, bool LIST>
static __device__ __forceinline__ bool
spread_slice(const struct epx_dispatch_rows &a, const struct coming_slice &from, int64_t token,
             int64_t slot, struct row_list &list, int32_t num)
{
    const struct part part = part_of_slice<LIST>(a, from.at.slice);
    const bool comes = from.source != a.comm.rank;
    static_assert(!LIST || Wire::TELLS, "rows of several fields lie in banks as they were sent");

    if constexpr (LIST) {
        if (comes && !Wire::await(a.comm, from))
            return false;
        take_fields(a.fields, part, comes ? row_in(a.banks, from.at.bank, from.at.row) : NULL,
                    token, slot, list);
    } else if (!comes) {
        store_row(a.rows + token * a.row_bytes + part.offset, list, num, part.bytes);
    } else if (!Wire::spread(a.comm, from, part.bytes, list, num)) {
        return false;
    }
    return true;
}

/* The whole warp: lists the weights of the K choices of a row's token as they come, a choice a
 * lane. Returns whether all came. */
template <typename Wire>
static __device__ __forceinline__ bool list_weights(const struct epx_dispatch_rows &a,
                                                    const struct coming_slice &from,
                                                    struct row_list &list)
{
    bool ok = true;

    if (lane_id() < a.plan.shape.top_k)
        ok = Wire::take_word(a.comm, from, lane_id(), list.weight[lane_id()]);
    __syncwarp();
    return __all_sync(~0u, ok);
}

#endif

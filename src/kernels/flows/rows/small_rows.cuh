/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_rows.cuh - the way of a row through the banks of a small dispatch: a token's row lies in
 * the bank of each rank that needs it at [source][token], so where it lies follows from nothing
 * that a routing finds out. banks.cuh has the protocol.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_SMALL_ROWS_CUH
#define EPX_KERNELS_FLOWS_ROWS_SMALL_ROWS_CUH

#include "kernels/args/row_args.h"
#include "kernels/flows/rows/small_fields.cuh"
#include "kernels/wires/banks.cuh"

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

/* The whole warp: lists where a slice goes in the bank that each lane has, NULL = in none; returns
 * in how many. */
static __device__ int32_t list_banks(const struct epx_dispatch_rows &a, char *bank, int64_t row,
                                     int64_t offset, struct row_list &list)
{
    uint32_t goes = __ballot_sync(~0u, bank != NULL);

    if (bank)
        list.row[__popc(goes & lanes_below())] = row_in(a.banks, bank, row) + offset;
    __syncwarp();
    return __popc(goes);
}

/* The whole warp: stores a part of a token's row into the lanes' banks. */
template <bool LIST>
static __device__ __forceinline__ void store_part(const struct epx_dispatch_rows &a,
                                                  const struct part &part, int64_t token,
                                                  char *bank, struct row_list &list)
{
    const int64_t row = bank_row(a, a.comm.rank, token);

    if constexpr (LIST) {
        store_fields(a.fields, part, token, bank ? row_in(a.banks, bank, row) : NULL, list);
    } else {
        int32_t num = list_banks(a, bank, row, part.offset, list);

        store_row(a.rows + token * a.row_bytes + part.offset, list, num, part.bytes);
    }
}

/* Whether the weights of a row's pairs go with a slice of it. */
static __device__ __forceinline__ bool has_weights(const struct epx_dispatch_rows &a, int32_t slice)
{
    return a.weights && slice == 0 && a.banks.pitch > a.banks.words_at;
}

/* The whole warp, if a token's weights go with a slice: store(bank, weight) in the lanes of all its
 * choices, which are not more than lanes, for the bank of every lane that has one. */
template <typename Store>
static __device__ __forceinline__ void store_weights(const struct epx_dispatch_rows &a,
                                                     int64_t token, int32_t slice, char *bank,
                                                     Store store)
{
    const int32_t top_k = a.plan.shape.top_k;
    uint32_t lanes = __ballot_sync(~0u, has_weights(a, slice) && bank);
    const float weight = lanes && lane_id() < top_k ? a.weights[token * top_k + lane_id()] : 0;

    for (; lanes; lanes &= lanes - 1) {
        char *to = (char *)__shfl_sync(~0u, (unsigned long long)bank, __ffs((int32_t)lanes) - 1);

        if (lane_id() < top_k)
            store(to, weight);
    }
}

/* The whole warp: stores a slice of a token's row into the lanes' banks, and with the first slice,
 * if weights go with rows, those of its pairs. */
template <bool LIST>
static __device__ void store_slice(const struct epx_dispatch_rows &a, int64_t token, int32_t slice,
                                   char *bank, struct row_list &list)
{
    const int64_t row = bank_row(a, a.comm.rank, token);

    store_part<LIST>(a, part_of_slice<LIST>(a, slice), token, bank, list);
    store_weights(a, token, slice, bank,
                  [&](char *to, float weight) { words_in(a.banks, to, row)[lane_id()] = weight; });
    __syncwarp();
}

/* Slices that a warp stores before it raises their flags, behind one fence. */
enum { TOLD_TOGETHER = 4 };

/* Stores this rank's rows and raises their flags. The whole warp: visit(token, each) calls each()
 * with the bank that every lane's share of the token's ranks has, NULL = none, 32 at a time. */
template <bool LIST, typename Visit>
static __device__ __forceinline__ void
store_slices(const struct epx_dispatch_rows &a, uint64_t epoch, struct row_list &list, Visit visit)
{
    const struct crew crew = crew_of(a.banks);
    const uint32_t slices = (uint32_t)a.banks.slices.num, all = (uint32_t)a.num_tokens * slices;
    const uint32_t step = (uint32_t)crew.num * TOLD_TOGETHER;

    for (uint32_t first = (uint32_t)crew.warp; first < all; first += step) {
        const uint32_t end = all - first < step ? all : first + step;

        for (uint32_t i = first; i < end; i += (uint32_t)crew.num)
            visit(i / slices, [&](char *bank) {
                store_slice<LIST>(a, i / slices, (int32_t)(i % slices), bank, list);
            });
        fence_release_sys();
        for (uint32_t i = first; i < end; i += (uint32_t)crew.num)
            visit(i / slices, [&](char *bank) {
                const int64_t row = bank_row(a, a.comm.rank, i / slices);

                if (bank)
                    raise_flag(a.comm, flag_in(a.banks, bank, row, (int32_t)(i % slices)), epoch);
            });
    }
}

/* The whole warp: each() is called with the banks of the ranks of a token's list, as store_slices
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

/* Stores a row for each rank of its token's list. */
template <bool LIST>
static __device__ void store_small_rows(const struct epx_dispatch_rows &a, uint64_t epoch,
                                        struct row_list &list)
{
    store_slices<LIST>(a, epoch, list,
                       [&](int64_t token, auto each) { visit_banks(a, epoch, token, each); });
}

/* The whole warp: waits for one slice of a row unless it is this rank's own. */
static __device__ bool await_bank_slice(const struct epx_dispatch_rows &a, char *bank,
                                        uint64_t epoch, int32_t source, int64_t token,
                                        int32_t slice)
{
    bool ok = true;

    if (source == a.comm.rank)
        return true;
    if (lane_id() == 0)
        ok = await_flag(a.comm, flag_in(a.banks, bank, bank_row(a, source, token), slice), epoch,
                        source);
    return acquire_words(a.comm, ok);
}

/* Where a row that came lies: in this rank's own rows, or in its bank. */
static __device__ __forceinline__ const char *
row_that_came(const struct epx_dispatch_rows &a, char *bank, int32_t source, int64_t token)
{
    return source == a.comm.rank ? a.rows + token * a.row_bytes
                                 : row_in(a.banks, bank, bank_row(a, source, token));
}

/* Where a row of several fields came in a bank; NULL = it is one of this rank's own. */
static __device__ __forceinline__ const char *
bank_that_has(const struct epx_dispatch_rows &a, char *bank, int32_t source, int64_t token)
{
    return source == a.comm.rank ? NULL : row_in(a.banks, bank, bank_row(a, source, token));
}

/* The weights of its token's K choices. */
static __device__ __forceinline__ const float *
weights_that_came(const struct epx_dispatch_rows &a, char *bank, int32_t source, int64_t token)
{
    return source == a.comm.rank ? a.weights + token * a.plan.shape.top_k
                                 : words_in(a.banks, bank, bank_row(a, source, token));
}

#endif

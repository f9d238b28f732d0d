/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spreads.cuh - expert side of dispatch: the slots of a record's row, and its pairs' weights; once
 * all rows have come, each from its first slot to its other slots, and zeros to padding rows.
 */
#ifndef EPX_KERNELS_DISPATCH_SPREADS_CUH
#define EPX_KERNELS_DISPATCH_SPREADS_CUH

#include "kernels/dispatch/fields.cuh"

/* The whole warp: lists a part of the row's slots from the first-th on; returns how many. */
static __device__ int32_t list_slots(const struct epx_dispatch_rows &a, const struct part &part,
                                     struct epx_wire_record *record, int32_t first,
                                     struct row_list &list)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    int32_t num = (a.plan.shape.rank_major ? 1 : record->num_slots) - first;

    for (int32_t i = lane_id(); i < num; i += EPX_WARP)
        list.row[i] = a.recv + pairs[first + i].slot * a.row_bytes + part.offset;
    __syncwarp();
    return num;
}

/* The whole warp: weights are those of the token's K choices. */
static __device__ void spread_weights(const struct epx_dispatch_rows &a, const float *weights,
                                      struct epx_wire_record *record)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    float *wide = a.recv_weights + (int64_t)pairs[0].slot * a.plan.shape.top_k;

    for (int32_t k = lane_id(); a.plan.shape.rank_major && k < a.plan.shape.top_k; k += EPX_WARP)
        wide[k] = 0;
    __syncwarp();
    for (int32_t i = lane_id(); i < record->num_pairs; i += EPX_WARP) {
        uint32_t choice = pairs[i].expert_choice & 255;

        if (a.plan.shape.rank_major)
            wide[choice] = weights[choice];
        else
            a.recv_weights[pairs[i].slot] = weights[choice];
    }
}

template <bool LIST>
static __device__ void spread_row(const struct epx_dispatch_rows &a, const struct part &part,
                                  struct epx_wire_record *record, struct row_list &list)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    int32_t num = a.plan.shape.rank_major ? 1 : record->num_slots;

    if (num < 2)
        return;
    for_pieces<LIST>(a, part.offset, part.bytes, [&](const struct piece &piece) {
        for (int32_t i = lane_id(); i < num - 1; i += EPX_WARP)
            list.row[i] = piece.out + pairs[i + 1].slot * piece.row_bytes + piece.offset;
        __syncwarp();
        store_row(piece.out + pairs[0].slot * piece.row_bytes + piece.offset, list, num - 1,
                  piece.bytes);
        __syncwarp();
    });
}

/* The weights of the pairs of a token, as they came from its rank. */
static __device__ __forceinline__ const float *weights_from(const struct epx_dispatch_rows &a,
                                                            int32_t source, int64_t token)
{
    return (const float *)(const void *)a.plan.weights[a.comm.rank] +
           ((int64_t)source * a.plan.shape.max_tokens + token) * a.plan.shape.top_k;
}

/* Spreads the rows and weights of the records in the range. */
template <bool LIST>
static __device__ void spread_records(const struct epx_dispatch_rows &a,
                                      const struct record_range &range, struct row_list &list,
                                      bool weighted)
{
    char *records = a.plan.records[a.comm.rank];
    struct epx_slices slices = epx_slices_of(a.row_bytes, range.num, num_global_warps());

    for (int64_t i = global_warp(); i < range.num * slices.num; i += num_global_warps()) {
        struct row_source at = find_in_range(range, i / slices.num);
        struct part part = part_of(slices, (int32_t)(i % slices.num), a.row_bytes);
        struct epx_wire_record *record = epx_wire_record_at(&a.plan, records, at.source, at.row);

        if (record->num_slots == 0)
            continue;
        if (part.bytes)
            spread_row<LIST>(a, part, record, list);
        if (weighted && part.offset == 0)
            spread_weights(a, weights_from(a, at.source, record->token), record);
    }
}

/* Zeroes padding and unused rows of every field, and their weights. */
template <bool LIST>
static __device__ void zero_rest(const struct epx_dispatch_rows &a, bool weighted)
{
    for (int32_t f = 0; f < (LIST ? a.fields.num : 1); f++) {
        char *rows = LIST ? (char *)a.fields.at[f].out : a.recv;
        int64_t row_bytes = LIST ? a.fields.at[f].bytes : a.row_bytes;
        float *weights = weighted && f == 0 ? a.recv_weights : NULL;

        zero_padding(a.plan, rows, row_bytes, weights, all_warps());
        zero_unused(a, rows, row_bytes, weights, all_warps());
    }
}

/* Whether weights come, and the user takes them. */
static __device__ __forceinline__ bool takes_weights(const struct epx_dispatch_rows &a)
{
    return a.comm.state->weighted && a.recv_weights;
}

#endif

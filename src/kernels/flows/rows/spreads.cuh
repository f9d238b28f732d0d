/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spreads.cuh - expert side of dispatch: the slots of a record's row, its pairs' weights, and zeros
 * to padding rows.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_SPREADS_CUH
#define EPX_KERNELS_FLOWS_ROWS_SPREADS_CUH

#include "kernels/flows/rows/padding.cuh"

/* The whole warp: lists a part of the row's slots; returns how many. */
static __device__ int32_t list_slots(const struct epx_dispatch_rows &a, const struct part &part,
                                     struct epx_wire_record *record, struct row_list &list)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    int32_t num = a.plan.shape.rank_major ? 1 : record->num_slots;

    for (int32_t i = lane_id(); i < num; i += EPX_WARP)
        list.row[i] = a.recv + pairs[i].slot * a.row_bytes + part.offset;
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

/* The weights of the pairs of a token, as they came from its rank. */
static __device__ __forceinline__ const float *weights_from(const struct epx_dispatch_rows &a,
                                                            int32_t source, int64_t token)
{
    return (const float *)(const void *)a.plan.weights[a.comm.rank] +
           ((int64_t)source * a.plan.shape.max_tokens + token) * a.plan.shape.top_k;
}

/* Zeroes padding and unused rows of every field, and their weights. */
template <bool LIST>
static __device__ void zero_rest(const struct epx_dispatch_rows &a, bool weighted,
                                 const struct crew &crew)
{
    for (int32_t f = 0; f < (LIST ? a.fields.num : 1); f++) {
        const struct field_rows field = rows_of_field<LIST>(a, f);
        float *weights = weighted && f == 0 ? a.recv_weights : NULL;

        zero_padding(a.plan, field.rows, field.row_bytes, weights, crew);
        zero_unused(a, field.rows, field.row_bytes, weights, crew);
    }
}

/* Whether weights come, and the user takes them. */
static __device__ __forceinline__ bool takes_weights(const struct epx_dispatch_rows &a)
{
    return a.comm.state->weighted && a.recv_weights;
}

#endif

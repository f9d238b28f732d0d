/* SPDX-License-Identifier: BSD-3-Clause */
/* sums.cuh - home side of combine: a token's rows from the stage, in rank order, into its sum. */
#ifndef EPX_KERNELS_SUMS_CUH
#define EPX_KERNELS_SUMS_CUH

#include "rows.cuh"

/* The rows of a token that were kept, in rank order; returns their number. */
static __device__ int32_t list_parts(const struct epx_combine_rows &a, const struct round &round,
                                     int64_t token, struct row_list &list)
{
    int32_t num = a.plan.token_num[token], kept = 0;
    char *first = a.plan.stage[a.comm.rank] +
                  (token - round.first_token) * a.rounds.width * a.rounds.pitch;

    for (int32_t at = 0; at < num; at += EPX_WARP) {
        int32_t i = at + lane_id();
        bool keeps = i < num && a.plan.token_slot[token * a.plan.most_rows + i] >= 0;
        uint32_t lanes = __ballot_sync(~0u, keeps);

        if (keeps)
            list.row[kept + __popc(lanes & ((1u << lane_id()) - 1))] = first + i * a.rounds.pitch;
        kept += __popc(lanes);
    }
    __syncwarp();
    return kept;
}

static __device__ void take_weights(const struct epx_combine_rows &a, int64_t token)
{
    const float *grads = (const float *)(const void *)a.plan.weights[a.comm.rank];
    int64_t first = token * a.plan.top_k;

    for (int64_t p = first + lane_id(); p < first + a.plan.top_k; p += EPX_WARP)
        a.grad_weights[p] = a.plan.pair_rank[p] >= 0 ? grads[p] : 0;
}

/* One warp a token. */
static __device__ void sum_tokens(const struct epx_combine_rows &a, const struct round &round,
                                  bool weighted, struct row_list &list)
{
    const struct epx_segments &cut = a.rounds.cut;
    int64_t end = round.end_token < a.num_tokens ? round.end_token : a.num_tokens;

    for (int64_t t = round.first_token + global_warp(); t < end; t += num_global_warps()) {
        int32_t num = list_parts(a, round, t, list);

        sum_rows(a.datatype, list, num, 0, epx_segment_length(cut, round.segment),
                 a.sums + t * cut.row_bytes + epx_segment_offset(cut, round.segment));
        if (weighted && a.grad_weights && round.segment == 0)
            take_weights(a, t);
        __syncwarp();
    }
}

#endif

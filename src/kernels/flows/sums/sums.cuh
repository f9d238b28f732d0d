/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sums.cuh - what both sides of a combine have, and its expert side: the sum of each row's pairs
 * into the home rank's stage. home_sums.cuh has the home side.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_SUMS_CUH
#define EPX_KERNELS_FLOWS_SUMS_SUMS_CUH

#include "kernels/flows/sums/places.cuh"
#include "kernels/protocol/records.cuh"
#include "kernels/warp/sum_rows.cuh"

/* Which of the kernels of SUM_KERNELS. */
static inline int epx_sum_kernel(const struct epx_combine_rows *args)
{
    return (int)(args->datatype - EPX_FLOAT16) + (args->wide ? NUM_ADDED_TYPES : 0);
}

/* Whether rows are multiplied by the weights of their pairs. */
static __device__ __forceinline__ bool multiplies(const struct epx_combine_rows &a)
{
    return a.weights && !a.backward;
}

/* Expert side: lists the rows of a record's pairs, from an offset into each row that travels on.
 * Weights that the record's home gives are put into the list afterwards. */
template <typename T>
static __device__ void list_pairs(const struct epx_combine_rows &a, int64_t offset,
                                  struct epx_wire_record *record, struct row_list &list)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    const bool weighted = multiplies(a) && !a.given;

    for (int32_t i = lane_id(); i < record->num_slots; i += EPX_WARP) {
        int64_t slot = pairs[i].slot;

        list.row[i] = (char *)(uintptr_t)a.rows + in_row<T>(slot * a.rounds.cut.row_bytes + offset);
        list.weight[i] = weighted ? a.weights[slot] : 1;
    }
    __syncwarp();
}

/* Puts the weights that a record's home has given, one for each choice, into the list of pairs. */
static __device__ void list_given(struct epx_wire_record *record, const float *given,
                                  struct row_list &list)
{
    for (int32_t i = lane_id(); i < record->num_slots; i += EPX_WARP)
        list.weight[i] = given[epx_wire_pairs(record)[i].expert_choice & 255];
    __syncwarp();
}

/* The gradient of a pair's weight, of the rank that has its expert. */
static __device__ __forceinline__ float grad_of_weight(const struct epx_combine_rows &a,
                                                       int64_t slot, int64_t choice)
{
    return a.weights[a.plan.shape.rank_major ? slot * a.plan.shape.top_k + choice : slot];
}

/* Sends the gradients of a record's pair weights; each goes to the place of its choice. */
static __device__ void send_weights(const struct epx_combine_rows &a,
                                    struct epx_wire_record *record, float *to)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);

    for (int32_t i = lane_id(); i < record->num_pairs; i += EPX_WARP) {
        int64_t slot = pairs[i].slot, choice = pairs[i].expert_choice & 255;

        to[choice] = grad_of_weight(a, slot, choice);
    }
}

template <typename T, typename Places>
static __device__ void send_sum(const struct epx_combine_rows &a, const Places &places,
                                const struct part &part, bool weighted, const struct round_row &at,
                                struct row_list &list)
{
    int64_t offset = epx_segment_offset(a.rounds.cut, places.round.segment) + part.offset;
    const float *given = places.given_weights(at);

    if (part.offset == 0)
        places.note_kept(at);
    if (at.record->num_slots == 0)
        return;
    list_pairs<T>(a, offset, at.record, list);
    if (given)
        list_given(at.record, given, list);
    sum_rows<typename T::row, typename T::part>(list, at.record->num_slots, multiplies(a),
                                                part.bytes / (int64_t)sizeof(typename T::part),
                                                places.sum_for(at) + part.offset);
    if (weighted && offset == 0)
        send_weights(a, at.record, places.weights_for(at));
    __syncwarp();
}

/* Expert side: sends the sums of all records of the round. Home ranks take turns, from this rank
 * on, so that not all ranks store to the same one at once. */
template <typename T, typename Places>
static __device__ void send_sums(const struct epx_combine_rows &a, const Places &places,
                                 bool weighted, struct row_list &list)
{
    const struct epx_round &round = places.round;
    char *records = a.plan.records[a.comm.rank];
    int64_t length = epx_segment_length(a.rounds.cut, round.segment);
    __shared__ int64_t first[EPX_MOST_DEVICE_RANKS], end[EPX_MOST_DEVICE_RANKS];
    __shared__ unsigned long long most;
    struct epx_slices slices;

    if (threadIdx.x == 0)
        most = 0;
    __syncthreads();
    for (int32_t s = (int32_t)threadIdx.x; s < a.comm.num_ranks; s += (int32_t)blockDim.x) {
        first[s] = first_record(a.plan, records, s, round.first_token);
        end[s] = first_record(a.plan, records, s, round.end_token);
        atomicMax(&most, (unsigned long long)(end[s] - first[s]));
    }
    __syncthreads();
    slices = epx_slices_of(length, (int64_t)most * a.comm.num_ranks, num_global_warps());
    for (int64_t i = global_warp(); i < (int64_t)most * a.comm.num_ranks * slices.num;
         i += num_global_warps()) {
        int64_t row = i / slices.num;
        int32_t home = (int32_t)((row + a.comm.rank) % a.comm.num_ranks);
        int64_t u = first[home] + row / a.comm.num_ranks;
        struct part part = part_of(slices, (int32_t)(i % slices.num), length);

        if (u < end[home]) {
            struct round_row at = {home, u - first[home],
                                   epx_wire_record_at(&a.plan, records, home, u)};

            send_sum<T>(a, places, part, weighted, at, list);
        }
    }
}

/* The whole warp: lists the rows of a token's pairs here; returns their number. In rank-major the
 * pairs share a row. */
template <typename T>
static __device__ int32_t list_own(const struct epx_combine_rows &a, int64_t token, int64_t offset,
                                   struct row_list &own)
{
    const int32_t top_k = a.plan.shape.top_k;
    int32_t num = 0;

    for (int32_t k = lane_id(); k - lane_id() < top_k; k += EPX_WARP) {
        const int32_t rank = k < top_k ? a.plan.pair_rank[token * top_k + k] : -1;
        const int64_t slot = k < top_k ? a.plan.view.slots[token * top_k + k] : 0;
        const bool here = rank == a.comm.rank;
        const uint32_t lanes = __ballot_sync(~0u, here);
        const int32_t place = num + __popc(lanes & lanes_below());

        if (here) {
            own.row[place] =
                (char *)(uintptr_t)a.rows + in_row<T>(slot * a.rounds.cut.row_bytes + offset);
            own.weight[place] = multiplies(a) ? a.weights[a.given ? token * top_k + k : slot] : 1;
        }
        num += __popc(lanes);
    }
    __syncwarp();
    return a.plan.shape.rank_major && num > 1 ? 1 : num;
}

/* The whole warp: puts the parts of a token that come from other ranks, `num` of them, into the
 * order of these ranks' last choices. Returns how many come before this rank's own part. */
static __device__ EPX_COLD int32_t order_by_choice(const struct epx_combine_rows &a, int64_t token,
                                                   char **row, int32_t *rank, int32_t num)
{
    const int MOST = EPX_MAX_TOP_K / EPX_WARP;
    const int32_t top_k = a.plan.shape.top_k;
    int32_t chosen[MOST], ranks[MOST], last[MOST], place[MOST] = {}, own = -1, before_own = 0;
    char *rows[MOST];

#pragma unroll
    for (int m = 0; m < MOST; m++) {
        const int32_t i = m * EPX_WARP + lane_id();

        chosen[m] = i < top_k ? a.plan.pair_rank[token * top_k + i] : -1;
        rows[m] = i < num ? row[i] : NULL;
        ranks[m] = i < num ? rank[i] : -1;
        last[m] = i < num ? -1 : INT32_MAX;
    }
    for (int32_t k = 0; k < top_k; k++) {
        const int32_t to = __shfl_sync(~0u, k < EPX_WARP ? chosen[0] : chosen[MOST - 1], k);

        own = to == a.comm.rank ? k : own;
#pragma unroll
        for (int m = 0; m < MOST; m++)
            last[m] = to >= 0 && to == ranks[m] ? k : last[m];
    }
#pragma unroll
    for (int m = 0; m < MOST; m++)
        before_own += __popc(__ballot_sync(~0u, last[m] < own));
    for (int32_t j = 0; j < num; j++) {
        const int32_t other = __shfl_sync(~0u, j < EPX_WARP ? last[0] : last[MOST - 1], j);

#pragma unroll
        for (int m = 0; m < MOST; m++)
            place[m] += other < last[m];
    }
    __syncwarp();
#pragma unroll
    for (int m = 0; m < MOST; m++)
        if (m * EPX_WARP + lane_id() < num) {
            row[place[m]] = rows[m];
            rank[place[m]] = ranks[m];
        }
    __syncwarp();
    return before_own;
}

/* The whole warp: gradients of the weights of a token's pairs; of pairs here from a.weights. */
template <typename Places>
static __device__ void take_all_weights(const struct epx_combine_rows &a, const Places &places,
                                        int64_t token)
{
    const int64_t top_k = a.plan.shape.top_k, first = token * top_k;

    for (int64_t k = lane_id(); k < top_k; k += EPX_WARP) {
        const int32_t rank = a.plan.pair_rank[first + k];
        const int64_t slot = a.plan.view.slots[first + k];
        float weight = 0;

        if (rank == a.comm.rank)
            weight = grad_of_weight(a, slot, k);
        else if (rank >= 0)
            weight = places.weight_of(token, k);
        a.grad_weights[first + k] = weight;
    }
}

#endif

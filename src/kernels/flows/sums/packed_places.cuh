/* SPDX-License-Identifier: BSD-3-Clause */
/* packed_places.cuh - where the sums of combine by messages lie, and the weights behind them. */
#ifndef EPX_KERNELS_FLOWS_SUMS_PACKED_PLACES_CUH
#define EPX_KERNELS_FLOWS_SUMS_PACKED_PLACES_CUH

#include "kernels/flows/sums/sums.cuh"
#include "kernels/wires/message_rows.cuh"

#ifdef __CUDACC__

/* Where a relay reads whether a row has a sum, as its last choice plus 1: behind the row's weights.
 * Used where rows may be dropped, or are added by last choice: the home knows what was kept, a
 * relay does not. */
static __device__ __forceinline__ int32_t *kept_behind(char *row, const struct epx_rounds &rounds,
                                                       int32_t num_weights)
{
    return (int32_t *)(void *)(weights_behind(row, rounds) + num_weights);
}

/* The last choice of a row's pairs, -1 = none was kept. */
static __device__ __forceinline__ int32_t last_choice_of(struct epx_wire_record *record)
{
    const int32_t num = record->num_slots ? record->num_pairs : 0;

    return num ? (int32_t)(epx_wire_pairs(record)[num - 1].expert_choice & 255) : -1;
}

/* Sums, and weights behind them, in messages: as places.cuh says. */
struct packed_places {
    static constexpr bool on_nodes = true;
    const struct epx_combine_rows &a;
    const struct epx_round &round;
    const struct message_rows &rows;

    __device__ __forceinline__ char *sum_for(const struct round_row &at) const
    {
        return row_in_stage(a.plan.outgoing, a.rounds, rows.expert_at[at.home] + at.row);
    }

    __device__ __forceinline__ const float *given_weights(const struct round_row &) const
    {
        return NULL;
    }

    /* Tells a relay whether the row has a sum. */
    __device__ __forceinline__ void note_kept(const struct round_row &at) const
    {
        if (epx_tells_kept(&a.plan.shape) && !goes_straight(a.plan, a.comm, at.home) &&
            lane_id() == 0)
            *kept_behind(sum_for(at), a.rounds, a.backward ? a.plan.shape.top_k : 0) =
                last_choice_of(at.record) + 1;
    }

    __device__ __forceinline__ float *weights_for(const struct round_row &at) const
    {
        return weights_behind(sum_for(at), a.rounds);
    }

    __device__ __forceinline__ bool has_part(int64_t token, int32_t place) const
    {
        return has_message(a.plan, a.comm, token, place);
    }

    __device__ __forceinline__ char *part_of_token(int64_t token, int32_t place) const
    {
        return row_in_stage(a.plan.incoming, a.rounds,
                            row_at_home(a.plan, a.comm, rows, token, place));
    }

    /* A pair's weight lies behind the row that the pair's rank, or that rank's relay, has sent. */
    __device__ __forceinline__ float weight_of(int64_t token, int64_t choice) const
    {
        int32_t rank = a.plan.pair_rank[token * a.plan.shape.top_k + choice], place = 0;

        while (a.plan.token_rank[token * a.plan.most_rows + place] != rank)
            place++;
        return weights_behind(part_of_token(token, place), a.rounds)[choice];
    }
};

template struct checked_places<packed_places>;

#endif

#endif

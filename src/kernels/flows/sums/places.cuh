/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * places.cuh - where the sums of a combine lie on their way if it is not by a wire into banks:
 * in stages that ranks store into (stored_places, here), or in messages (packed_places.cuh). Flows
 * take one of them as a template argument, and ask it; a lane each, but for note_kept().
 *
 *   on_nodes         whether a relay adds up what the ranks of a node have of a sum
 *   sum_for()        where the sum of a row of the round goes, on the expert's rank
 *   note_kept()      the whole warp, on the expert's rank: tells which rows have a sum
 *   given_weights()  the weights of a row's pairs that its home has sent, one for each choice;
 *                    NULL = none
 *   weights_for()    where gradients of the weights of a row's pairs go, one for each choice
 *   has_part()       at home: whether the place-th row of a token has a part
 *   part_of_token()  at home: that part
 *   weight_of()      at home: the gradient of the weight of a token's choice
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_PLACES_CUH
#define EPX_KERNELS_FLOWS_SUMS_PLACES_CUH

#include "kernels/args/sum_args.h"
#include "kernels/policy.cuh"

/* A row of a round on the expert's rank: the row-th of the round from its home. */
struct round_row {
    int32_t home;
    int64_t row;
    struct epx_wire_record *record;
};

/* Stands beside each kind of places. */
template <typename Places> struct checked_places {
    static constexpr bool on_nodes = Places::on_nodes;

    EPX_HAS(Places, sum_for, char *(Places::*)(const struct round_row &) const);
    EPX_HAS(Places, note_kept, void (Places::*)(const struct round_row &) const);
    EPX_HAS(Places, given_weights, const float *(Places::*)(const struct round_row &) const);
    EPX_HAS(Places, weights_for, float *(Places::*)(const struct round_row &) const);
    EPX_HAS(Places, has_part, bool (Places::*)(int64_t, int32_t) const);
    EPX_HAS(Places, part_of_token, char *(Places::*)(int64_t, int32_t) const);
    EPX_HAS(Places, weight_of, float (Places::*)(int64_t, int64_t) const);
};

/* Where sums and weights lie if ranks store into each other's memory. */
struct stored_places {
    static constexpr bool on_nodes = false;
    const struct epx_combine_rows &a;
    const struct epx_round &round;

    __device__ __forceinline__ char *sum_for(const struct round_row &at) const
    {
        int64_t place = (at.record->token - round.first_token) * a.rounds.width + at.record->place;

        return a.plan.stage[at.home] + place * a.rounds.pitch;
    }

    __device__ __forceinline__ const float *given_weights(const struct round_row &at) const
    {
        const int64_t token = (int64_t)at.home * a.plan.shape.max_tokens + at.record->token;

        return a.given ? (const float *)(const void *)a.plan.weights[a.comm.rank] +
                             token * a.plan.shape.top_k
                       : NULL;
    }

    /* Nobody needs to be told which rows have a sum: the home of each row knows. */
    __device__ __forceinline__ void note_kept(const struct round_row &) const
    {
    }

    __device__ __forceinline__ float *weights_for(const struct round_row &at) const
    {
        return (float *)(void *)a.plan.weights[at.home] +
               (int64_t)at.record->token * a.plan.shape.top_k;
    }

    __device__ __forceinline__ bool has_part(int64_t token, int32_t place) const
    {
        return a.plan.token_slot[token * a.plan.most_rows + place] >= 0;
    }

    __device__ __forceinline__ char *part_of_token(int64_t token, int32_t place) const
    {
        int64_t at = (token - round.first_token) * a.rounds.width + place;

        return a.plan.stage[a.comm.rank] + at * a.rounds.pitch;
    }

    __device__ __forceinline__ float weight_of(int64_t token, int64_t choice) const
    {
        return ((const float *)(const void *)
                    a.plan.weights[a.comm.rank])[token * a.plan.shape.top_k + choice];
    }
};

template struct checked_places<stored_places>;

#endif

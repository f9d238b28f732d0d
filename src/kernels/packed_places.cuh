/* SPDX-License-Identifier: BSD-3-Clause */
/* packed_places.cuh - where the sums of combine by messages lie, and the weights behind them. */
#ifndef EPX_KERNELS_PACKED_PLACES_CUH
#define EPX_KERNELS_PACKED_PLACES_CUH

#include "exchange.cuh"
#include "sums.cuh"

/* The same questions as of stored_places. */
struct packed_places {
    static constexpr bool on_nodes = true;
    const struct epx_combine_rows &a;
    const struct round &round;
    const struct message_rows &rows;

    __device__ __forceinline__ char *sum_for(int32_t home, int64_t row,
                                             const struct epx_wire_record *record) const
    {
        return row_in_stage(a.plan.outgoing, a.rounds, home, row);
    }

    __device__ __forceinline__ float *weights_for(int32_t home, int64_t row,
                                                  const struct epx_wire_record *record) const
    {
        return weights_behind(sum_for(home, row, record), a.rounds);
    }

    __device__ __forceinline__ char *part_of_token(int64_t token, int32_t place) const
    {
        int64_t at = token * a.plan.most_rows + place;
        int32_t rank = a.plan.token_rank[at];

        return row_in_stage(a.plan.incoming, a.rounds, rank,
                            a.plan.token_row[at] - rows.send_first[rank]);
    }

    __device__ __forceinline__ float weight_of(int64_t token, int64_t choice) const
    {
        int32_t rank = a.plan.pair_rank[token * a.plan.top_k + choice], place = 0;

        while (a.plan.token_rank[token * a.plan.most_rows + place] != rank)
            place++;
        return weights_behind(part_of_token(token, place), a.rounds)[choice];
    }
};

#endif

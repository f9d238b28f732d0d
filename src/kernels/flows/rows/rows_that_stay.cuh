/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rows_that_stay.cuh - the receivers of move_rows where a record has at most one slot, in a layout
 * of a row a rank, and its row came straight there: no row is taken further, so a lane and not a
 * warp waits for each, and sets its weights. Few blocks are enough. No task is claimed.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_ROWS_THAT_STAY_CUH
#define EPX_KERNELS_FLOWS_ROWS_ROWS_THAT_STAY_CUH

#include "kernels/flows/rows/row_receivers.cuh"

/* All that a receiver's warp does; one of a block that has sent does nothing. */
template <bool LIST> static __device__ void await_rows_that_stay(const struct mover<LIST> &m)
{
    const int64_t num = (int64_t)most_records(m.a, 1) * (m.a.comm.num_ranks - 1);

    for (int64_t warp = m.crew.warp; warp >= 0 && warp * EPX_WARP < num; warp += m.crew.num) {
        const int64_t i = warp * EPX_WARP + lane_id();
        int32_t source = 0;
        struct epx_wire_record *record = i < num ? record_in_turn(m.a, 1, i, source) : NULL;
        bool ok = true;

        if (record && !record->num_slots)
            record = NULL;
        for (int32_t s = 0; record && s < m.a.movers.slices.num; s++)
            ok = ok && await_slice(m.a, m.x, source, record->token, s);
        if (!acquire_progress(m.a.comm, ok))
            return;
        if (record && m.weighted)
            set_weights(m, source, record);
    }
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* count_checks.cuh - which counts of an alltoallv are valid, and how one with invalid ones ends. */
#ifndef EPX_KERNELS_ALLTOALLV_COUNT_CHECKS_CUH
#define EPX_KERNELS_ALLTOALLV_COUNT_CHECKS_CUH

#include "kernels/args/alltoallv_args.h"
#include "kernels/warp/lanes.cuh"

static __device__ __forceinline__ bool can_send(const struct epx_alltoallv_rows &a, int64_t count,
                                                int64_t from)
{
    return count >= 0 && (count == 0 || (from >= 0 && from <= a.send_rows - count));
}

/* One warp: reads so many counts and displacements, those of ranks or of edges. Returns the first
 * with an invalid count, -1 = none. */
static __device__ __forceinline__ int32_t read_counts(const struct epx_alltoallv_rows &a,
                                                      int32_t num, int64_t *counts, int64_t *places)
{
    int32_t bad = -1;

    for (int32_t first = 0; first < num; first += EPX_WARP) {
        int32_t i = first + lane_id();
        bool valid = i < num;
        int64_t count = valid ? a.sendcounts[i] : 0, from = valid ? a.sdispls[i] : 0;
        uint32_t lanes = __ballot_sync(~0u, !can_send(a, count, from));

        if (valid) {
            counts[i] = count;
            places[i] = from;
        }
        bad = bad < 0 && lanes ? first + __ffs((int)lanes) - 1 : bad;
    }
    __syncwarp();
    return bad;
}

/* bad: the first rank with an invalid count, -1 = none; rows: how many come here from all. */
static __device__ EPX_COLD struct epx_outcome outcome_of_counts(const struct epx_alltoallv_rows &a,
                                                                int32_t bad, int64_t rows)
{
    if (bad >= 0 && a.sendcounts[bad] > 0 && a.sdispls[bad] >= 0)
        return {EPX_ERR_BUFFER,
                a.rows ? EPX_OUTCOME_PAST_END : EPX_OUTCOME_NO_ROWS,
                bad,
                0,
                a.sendcounts[bad],
                a.sdispls[bad],
                a.send_rows};
    if (bad >= 0)
        return {EPX_ERR_COUNT, EPX_OUTCOME_BAD_COUNT, bad, 0, a.sendcounts[bad], a.sdispls[bad], 0};
    if (rows > a.recv_capacity)
        return {EPX_ERR_TRUNCATE, EPX_OUTCOME_SHORT, a.comm.rank, 0, rows, a.recv_capacity, 0};
    return epx_outcome();
}

#endif

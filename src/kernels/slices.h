/* SPDX-License-Identifier: BSD-3-Clause */
/* slices.h - how rows are cut into slices, of which a warp takes one at a time. */
#ifndef EPX_KERNELS_SLICES_H
#define EPX_KERNELS_SLICES_H

#include "kernels/layout.h"

/* A row is cut into slices, a warp each, where there are fewer rows than warps. */
struct epx_slices {
    int32_t num;
    int64_t bytes; /* of each but the last */
};

enum { EPX_LEAST_SLICE_BYTES = 2048, EPX_SLICE_QUANTUM = 512 };

/* None but the last shorter than `least`, a multiple of the quantum. */
EPX_HD struct epx_slices epx_slices_from(int64_t least, int64_t row_bytes, int64_t rows,
                                         int64_t warps)
{
    struct epx_slices slices;
    int64_t most = (row_bytes + least - 1) / least;
    int64_t wanted = rows ? warps / rows : warps;

    wanted = wanted < most ? wanted : most;
    slices.bytes =
        epx_round_up(wanted > 1 ? (row_bytes + wanted - 1) / wanted : row_bytes, EPX_SLICE_QUANTUM);
    slices.num = slices.bytes ? (int32_t)((row_bytes + slices.bytes - 1) / slices.bytes) : 1;
    return slices;
}

EPX_HD struct epx_slices epx_slices_of(int64_t row_bytes, int64_t rows, int64_t warps)
{
    return epx_slices_from(EPX_LEAST_SLICE_BYTES, row_bytes, rows, warps);
}

#endif

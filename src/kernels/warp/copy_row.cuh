/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_row.cuh - what one warp does to one row: which part of it, and stored to several places.
 * Row memory that peers write is read by plain loads.
 */
#ifndef EPX_KERNELS_WARP_COPY_ROW_CUH
#define EPX_KERNELS_WARP_COPY_ROW_CUH

#include "kernels/slices.h"
#include "kernels/warp/lanes.cuh"

enum { ROW_UNROLL = 4 }; /* packs that a lane loads before it stores them */

/* The rows that one warp works on together; in shared memory, one list a warp. */
struct row_list {
    char *row[EPX_MAX_TOP_K]; /* NULL = no place to store to */
    union {
        float weight[EPX_MAX_TOP_K];
        int32_t node[EPX_MAX_TOP_K]; /* where the row comes from; rows of a node lie together */
    };
};

static __host__ __device__ __forceinline__ uint32_t misalignment(const void *address)
{
    return (uint32_t)(uintptr_t)address & 15u;
}

/* The bytes of a row segment that one warp works on. */
struct part {
    int64_t offset, bytes;
};

static __device__ __forceinline__ struct part part_of(const struct epx_slices &slices,
                                                      int32_t slice, int64_t length)
{
    struct part part = {slice * slices.bytes, slices.bytes};

    part.bytes = length - part.offset < part.bytes ? length - part.offset : part.bytes;
    part.bytes = part.bytes > 0 ? part.bytes : 0;
    return part;
}

/* The bits in which any row of the list is misaligned. */
static __device__ uint32_t list_misalignment(const struct row_list &list, int32_t num)
{
    uint32_t odd = 0;

    for (int32_t i = lane_id(); i < num; i += EPX_WARP)
        odd |= misalignment(list.row[i]);
    return __reduce_or_sync(~0u, odd);
}

template <typename Unit>
static __device__ void store_units(const char *from, const struct row_list &to, int32_t num,
                                   int64_t bytes)
{
    const Unit *source = (const Unit *)from;
    int64_t units = bytes / (int64_t)sizeof(Unit);

    for (int64_t first = 0; first < units; first += EPX_WARP * ROW_UNROLL) {
        Unit data[ROW_UNROLL];

#pragma unroll
        for (int j = 0; j < ROW_UNROLL; j++) {
            int64_t i = first + j * EPX_WARP + lane_id();

            if (i < units)
                data[j] = source[i];
        }
        for (int32_t p = 0; p < num; p++) {
            Unit *place = (Unit *)(void *)to.row[p];

            if (!place)
                continue;
#pragma unroll
            for (int j = 0; j < ROW_UNROLL; j++) {
                int64_t i = first + j * EPX_WARP + lane_id();

                if (i < units)
                    place[i] = data[j];
            }
        }
    }
}

/* The whole warp: stores a row of any length and alignment to the places of the list. */
static __device__ void store_row(const char *from, const struct row_list &to, int32_t num,
                                 int64_t bytes)
{
    uint32_t odd = list_misalignment(to, num) | misalignment(from) | ((uint32_t)bytes & 15u);

    if ((odd & 15) == 0)
        store_units<uint4>(from, to, num, bytes);
    else if ((odd & 7) == 0)
        store_units<uint2>(from, to, num, bytes);
    else if ((odd & 3) == 0)
        store_units<uint32_t>(from, to, num, bytes);
    else if ((odd & 1) == 0)
        store_units<uint16_t>(from, to, num, bytes);
    else
        store_units<uint8_t>(from, to, num, bytes);
}

static __device__ void zero_row(char *to, int64_t bytes)
{
    if ((misalignment(to) | ((uint32_t)bytes & 15u)) == 0) {
        for (int64_t i = lane_id(); i < bytes / 16; i += EPX_WARP)
            ((uint4 *)to)[i] = make_uint4(0, 0, 0, 0);
        return;
    }
    for (int64_t i = lane_id(); i < bytes; i += EPX_WARP)
        to[i] = 0;
}

#endif

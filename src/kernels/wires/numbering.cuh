/* SPDX-License-Identifier: BSD-3-Clause */
/* numbering.cuh - one block numbers rows in the order of its threads; device_plan.h says how. */
#ifndef EPX_KERNELS_WIRES_NUMBERING_CUH
#define EPX_KERNELS_WIRES_NUMBERING_CUH

#include "kernels/warp/lanes.cuh"

#ifdef __CUDACC__

enum { NUMBERING_THREADS = 1024 };

static __device__ __forceinline__ int32_t number_of(int32_t before, bool is)
{
    return before << 1 | is;
}

static __device__ __forceinline__ int32_t rows_before(int32_t number)
{
    return number >> 1;
}

static __device__ __forceinline__ bool is_row(int32_t number)
{
    return number & 1;
}

/* The whole block of NUMBERING_THREADS: the rows before this thread's, from `num` on, to which all
 * of the block's are added. */
static __device__ int32_t take_numbers(bool is, int32_t &num)
{
    __shared__ int32_t counts[NUMBERING_THREADS / EPX_WARP];
    uint32_t lanes = __ballot_sync(~0u, is);
    int32_t warp = (int32_t)threadIdx.x / EPX_WARP;
    int32_t before = num + __popc(lanes & lanes_below());

    if (lane_id() == 0)
        counts[warp] = __popc(lanes);
    __syncthreads();
    for (int32_t w = 0; w < NUMBERING_THREADS / EPX_WARP; w++) {
        before += w < warp ? counts[w] : 0;
        num += counts[w];
    }
    __syncthreads();
    return before;
}

#endif

#endif

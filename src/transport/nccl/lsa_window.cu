/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lsa_window.cu - asks NCCL once where a window of each rank is mapped here. This rank's own part
 * keeps the address that it was allocated at, so that kernels see each byte at one address.
 */
#include "transport/nccl/lsa_window.h"

#include <cstddef>
#include <nccl_device.h>

static __global__ void resolve(ncclWindow_t window, void *own, int rank, int num_ranks, char **row)
{
    for (int r = (int)threadIdx.x; r < num_ranks; r += (int)blockDim.x)
        row[r] = (char *)(r == rank ? own : ncclGetLsaPointer(window, 0, r));
}

int epx_lsa_resolve(ncclWindow_t window, void *own, int rank, int num_ranks, char **row,
                    EPX_Stream stream)
{
    resolve<<<1, 128, 0, stream>>>(window, own, rank, num_ranks, row);
    return cudaGetLastError() == cudaSuccess ? EPX_SUCCESS : EPX_ERR_CUDA;
}

int epx_lsa_load(void)
{
    cudaFuncAttributes attributes;

    return cudaFuncGetAttributes(&attributes, resolve) == cudaSuccess ? EPX_SUCCESS : EPX_ERR_CUDA;
}

int epx_lsa_reach(void *team_lsa, ncclComm_t comm)
{
    return ((ncclTeam_t(*)(ncclComm_t))team_lsa)(comm).nRanks;
}

int epx_lsa_layout_is_known(void)
{
    return offsetof(ncclWindow_vidmem, lsaFlatBase) == 8 &&
           offsetof(ncclWindow_vidmem, stride4G) == 24 && sizeof(char *) == 8;
}

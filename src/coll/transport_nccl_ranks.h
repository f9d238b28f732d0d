/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_nccl_ranks.h - ranks, their GPUs and NCCL. */
#ifndef EPX_COLL_TRANSPORT_NCCL_RANKS_H
#define EPX_COLL_TRANSPORT_NCCL_RANKS_H

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "comm.h"

#define EPX_TRY_NCCL(call)                                                                    \
    do {                                                                                      \
        ncclResult_t epx_rc_ = (call);                                                        \
        if (epx_rc_ != ncclSuccess)                                                           \
            return epx_fail(EPX_ERR_TRANSPORT, "%s: %s", #call,                               \
                            ncclGetErrorString(epx_rc_));                                     \
    } while (0)

/* A number that only this GPU has, not 0. */
int64_t epx_nccl_device_number(const struct cudaDeviceProp *properties);
/*
 * Collective, because only together the ranks know that two of them have one GPU: the numbers of
 * all ranks' current GPUs, to be freed; or NULL and why NCCL cannot be used here.
 */
int64_t *epx_nccl_devices(struct epx_comm *comm, char *why);
/* Collective, agreed: *nccl stays NULL on one rank. */
int epx_nccl_connect(struct epx_comm *comm, ncclConfig_t *config, ncclComm_t *nccl);

#endif

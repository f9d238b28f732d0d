/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_ranks.h - ranks, their GPUs and NCCL. */
#ifndef EPX_TRANSPORT_NCCL_NCCL_RANKS_H
#define EPX_TRANSPORT_NCCL_NCCL_RANKS_H

#include <nccl.h>

#include "core/comm.h"

#define EPX_TRY_NCCL(call)                                                                         \
    do {                                                                                           \
        ncclResult_t epx_rc_ = (call);                                                             \
        if (epx_rc_ != ncclSuccess)                                                                \
            return epx_fail(EPX_ERR_TRANSPORT, "%s: %s", #call, ncclGetErrorString(epx_rc_));      \
    } while (0)

/* Collective: the numbers of epx_device_numbers, all different within a node; or NULL, and why NCCL
 * cannot be used here. */
int64_t *epx_nccl_devices(struct epx_comm *comm, char *why);
/* Collective, agreed: *nccl stays NULL on one rank. */
int epx_nccl_connect(struct epx_comm *comm, ncclConfig_t *config, ncclComm_t *nccl);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl_ranks.c - what the transports over NCCL have in common: whether each rank has a
 * GPU of its own and an NCCL that fits, and how ranks come together.
 */
#include "transport/nccl/nccl_ranks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/agree.h"
#include "transport/cuda/device_ranks.h"
#include "transport/nccl/nccl_open.h"
#include "transport/transport.h"

/* Whether two ranks of a node have one GPU. Only ranks of one node are compared, as NCCL compares
 * only those of one host, and NCCL_HOSTID can pretend hosts. */
static int same_device_twice(const struct epx_comm *comm, const int64_t *devices)
{
    for (int r = 0; r < comm->size; r++)
        for (int s = 0; s < r; s++)
            if (devices[r] && devices[r] == devices[s] && comm->node[r] == comm->node[s])
                return 1;
    return 0;
}

/* Whether NCCL is here, which one rank alone does without. Told once where ranks would use it. */
static int check_library(const struct epx_comm *comm, char *why)
{
    static atomic_int told;

    if (comm->size == 1 || epx_nccl_open(why))
        return 1;
    if (comm->rank == 0 && !comm->params.transport && !atomic_exchange(&told, 1))
        EPX_LOG_WARN("transports lsa and nccl are left out: %s", why);
    return 0;
}

int64_t *epx_nccl_devices(struct epx_comm *comm, char *why)
{
    int64_t *devices = epx_device_numbers(comm, why);
    int twice = devices && same_device_twice(comm, devices);

    if (twice)
        snprintf(why, EPX_WHY_MAX, "two ranks have the same GPU");
    if (devices && !twice && check_library(comm, why))
        return devices;
    free(devices);
    return NULL;
}

static int make_id(const struct epx_comm *comm, ncclUniqueId *id)
{
    if (comm->rank == 0)
        EPX_TRY_NCCL(ncclGetUniqueId(id));
    return EPX_SUCCESS;
}

static int join(const struct epx_comm *comm, ncclUniqueId id, ncclConfig_t *config,
                ncclComm_t *nccl)
{
    EPX_TRY_NCCL(ncclCommInitRankConfig(nccl, comm->size, id, comm->rank, config));
    return EPX_SUCCESS;
}

int epx_nccl_connect(struct epx_comm *comm, ncclConfig_t *config, ncclComm_t *nccl)
{
    ncclUniqueId id;

    if (comm->size == 1)
        return EPX_SUCCESS;
    memset(&id, 0, sizeof(id));
    EPX_TRY(epx_comm_agree(comm, make_id(comm, &id)));
    EPX_TRY(epx_comm_bcast(comm, &id, (int)sizeof(id)));
    return epx_comm_agree(comm, join(comm, id, config, nccl));
}

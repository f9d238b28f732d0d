/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_nccl_ranks.c - what the transports over NCCL have in common: whether each rank has a
 * GPU of its own and the NCCL that this was built with, and how ranks come together.
 */
#include "transport_nccl_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "kernels/device.h"
#include "transport.h"

static int same_device_twice(const struct epx_comm *comm, const int64_t *devices)
{
    for (int r = 0; r < comm->size; r++)
        for (int s = 0; s < r; s++)
            if (devices[r] == devices[s])
                return 1;
    return 0;
}

int64_t epx_nccl_device_number(const struct cudaDeviceProp *properties)
{
    uint64_t number = 0;

    for (size_t i = 0; i < sizeof(properties->uuid.bytes); i++)
        number = number * 131 + (unsigned char)properties->uuid.bytes[i];
    return number ? (int64_t)number : 1;
}

/* That of the current GPU, or 0 without a usable one. */
static int64_t device_number(char *why)
{
    struct cudaDeviceProp properties;
    int count = 0, ordinal = 0;
    cudaError_t error = cudaGetDeviceCount(&count);

    if (error == cudaSuccess && count > 0)
        error = cudaGetDevice(&ordinal);
    if (error == cudaSuccess && count > 0)
        error = cudaGetDeviceProperties(&properties, ordinal);
    if (error != cudaSuccess || count < 1) {
        cudaGetLastError();
        snprintf(why, EPX_WHY_MAX, "no CUDA device: %s",
                 error != cudaSuccess ? cudaGetErrorString(error) : "none is visible");
        return 0;
    }
    if (properties.major < 9) {
        snprintf(why, EPX_WHY_MAX, "the device has compute capability %d.%d, want 9.0",
                 properties.major, properties.minor);
        return 0;
    }
    return epx_nccl_device_number(&properties);
}

static int check_versions(char *why)
{
    int version = 0;

    if (ncclGetVersion(&version) == ncclSuccess && version == NCCL_VERSION_CODE)
        return 1;
    snprintf(why, EPX_WHY_MAX, "NCCL is of version %d at run time, EPX was built with %d", version,
             NCCL_VERSION_CODE);
    return 0;
}

/* What only the ranks together know. */
static int check_ranks(const struct epx_comm *comm, const int64_t *devices, char *why)
{
    if (same_device_twice(comm, devices)) {
        snprintf(why, EPX_WHY_MAX, "two ranks have the same GPU");
        return 0;
    }
    if (comm->size > EPX_MOST_DEVICE_RANKS) {
        snprintf(why, EPX_WHY_MAX, "%d ranks, want at most %d", comm->size, EPX_MOST_DEVICE_RANKS);
        return 0;
    }
    return 1;
}

int64_t *epx_nccl_devices(struct epx_comm *comm, char *why)
{
    int64_t *devices = calloc((size_t)comm->size, sizeof(*devices));
    int64_t number = devices ? device_number(why) : 0;
    int usable = number != 0 && check_versions(why);

    if (!devices || epx_comm_allgather(comm, number, devices) != EPX_SUCCESS)
        usable = 0;
    else
        usable = usable && check_ranks(comm, devices, why);
    if (usable)
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

/* SPDX-License-Identifier: BSD-3-Clause */
/* device_ranks.c - the GPUs of a communicator's ranks, and whether kernels run on them. */
#include "transport/cuda/device_ranks.h"
#include "core/agree.h"
#include "transport/transport.h"
#include "kernels/args/device_comm.h"

#include <stdio.h>
#include <stdlib.h>

int64_t epx_device_number(const struct cudaDeviceProp *properties)
{
    uint64_t number = 0;

    for (size_t i = 0; i < sizeof(properties->uuid.bytes); i++)
        number = number * 131 + (unsigned char)properties->uuid.bytes[i];
    return number ? (int64_t)number : 1;
}

/* The number of the current GPU; 0, and why, without a usable one. */
static int64_t own_number(char *why)
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
    return epx_device_number(&properties);
}

/* CUDA_DEVICE_MAX_CONNECTIONS=1 makes all streams of this process share one hardware queue. */
int epx_device_check_queues(char *why)
{
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");

    if (!connections || atoi(connections) != 1)
        return 1;
    snprintf(why, EPX_WHY_MAX,
             "its kernels wait for messages that are queued behind them, which one hardware queue "
             "never starts: CUDA_DEVICE_MAX_CONNECTIONS is 1, want at least 2");
    return 0;
}

static int check_ranks(const struct epx_comm *comm, char *why)
{
    if (comm->size > EPX_MOST_DEVICE_RANKS) {
        snprintf(why, EPX_WHY_MAX, "%d ranks, want at most %d", comm->size, EPX_MOST_DEVICE_RANKS);
        return 0;
    }
    return 1;
}

int64_t *epx_device_numbers(struct epx_comm *comm, char *why)
{
    int64_t *devices = calloc((size_t)comm->size, sizeof(*devices));
    int64_t number = devices ? own_number(why) : 0;

    if (devices && epx_comm_allgather(comm, number, devices) == EPX_SUCCESS && number &&
        check_ranks(comm, why))
        return devices;
    free(devices);
    return NULL;
}

int epx_device_check_nodes(const struct epx_comm *comm, char *why)
{
    if (comm->num_nodes == 1 && comm->real_nodes == 1)
        return 1;
    snprintf(why, EPX_WHY_MAX, "the ranks are on %d nodes%s", comm->num_nodes,
             comm->params.ranks_per_node ? " (epx_ranks_per_node)" : "");
    return 0;
}

void epx_device_find_ordinals(const struct epx_comm *comm, const int64_t *devices, int *ordinals)
{
    struct cudaDeviceProp properties;
    int count = 0;

    if (cudaGetDeviceCount(&count) != cudaSuccess)
        count = 0;
    for (int r = 0; r < comm->size; r++)
        ordinals[r] = -1;
    for (int d = 0; d < count; d++) {
        if (cudaGetDeviceProperties(&properties, d) != cudaSuccess)
            continue;
        for (int r = 0; r < comm->size; r++)
            if (devices[r] == epx_device_number(&properties))
                ordinals[r] = d;
    }
    cudaGetLastError();
}

int epx_device_check_atomics(const struct epx_comm *comm, const int64_t *devices, char *why)
{
    int ordinals[EPX_MOST_DEVICE_RANKS], own, atomics, without = -1;

    epx_device_find_ordinals(comm, devices, ordinals);
    own = ordinals[comm->rank];
    for (int r = 0; r < comm->size && without < 0; r++)
        if (own >= 0 && ordinals[r] >= 0 && ordinals[r] != own &&
            cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, own,
                                      ordinals[r]) == cudaSuccess &&
            !atomics)
            without = r;
    cudaGetLastError();
    if (without >= 0)
        snprintf(why, EPX_WHY_MAX,
                 "the GPU of rank %d has no atomics on the memory of that of "
                 "rank %d",
                 comm->rank, without);
    return without < 0;
}

/* The ranks that have the GPU of this one. */
static int count_sharers(const struct epx_comm *comm, const int64_t *devices)
{
    int ranks = 0;

    for (int r = 0; r < comm->size; r++)
        ranks += devices[r] == devices[comm->rank];
    return ranks;
}

int epx_device_check_room(const struct epx_comm *comm, const int64_t *devices, char *why)
{
    int sms = 0, ordinal = 0, ranks = count_sharers(comm, devices);

    if (ranks == 1)
        return 1;
    if (cudaGetDevice(&ordinal) != cudaSuccess ||
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, ordinal) != cudaSuccess)
        cudaGetLastError();
    if (ranks * epx_waiting_sms(&comm->params) <= sms)
        return 1;
    snprintf(why, EPX_WHY_MAX,
             "%d ranks share a GPU of %d multiprocessors, want epx_max_sms at "
             "most %d",
             ranks, sms, sms / ranks);
    return 0;
}

int epx_device_count_sharers(struct epx_comm *comm, int *ranks)
{
    char why[EPX_WHY_MAX] = "no memory for a table of ranks";
    int64_t *devices = epx_device_numbers(comm, why);
    int rc = devices ? EPX_SUCCESS : epx_fail(EPX_ERR_CUDA, "%s", why);

    if (devices)
        *ranks = count_sharers(comm, devices);
    free(devices);
    return epx_comm_agree(comm, rc);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* device_ranks.c - the GPUs of a communicator's ranks, and whether kernels run on them. */
#include "device_ranks.h"

#include <stdio.h>
#include <stdlib.h>

#include "agree.h"
#include "kernels/device.h"
#include "transport.h"

int64_t epx_device_number(const struct cudaDeviceProp *properties)
{
    uint64_t number = 0;

    for (size_t i = 0; i < sizeof(properties->uuid.bytes); i++)
        number = number * 131 + (unsigned char)properties->uuid.bytes[i];
    return number ? (int64_t)number : 1;
}

/* That of the current GPU, or 0 without a usable one. */
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

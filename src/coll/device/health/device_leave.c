/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_leave.c - how a rank leaves a communicator on device memory that has ended. Its operations
 * are complete by then, but kernels may still be queued, or be part of a graph that is replayed.
 * A kernel looks at the abort word in this rank's own window first, and touches no other rank's
 * memory if that is set. So once the word is known to be set, and what had begun before is done,
 * the memory of other ranks can be unmapped, and kernels that begin later still end.
 */
#include "coll/device/health/device_leave.h"

#include "coll/device/staged/proxy.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"

/* The kernel that announces the end runs on the library's stream. */
static int expect_end(struct epx_device *device)
{
    uint64_t *word = &device->notes->abort;

    EPX_TRY_CUDA(cudaMemcpyAsync(word, device->window->own, sizeof(*word), cudaMemcpyDefault,
                                 device->stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(device->stream));
    EPX_FAIL_IF(*word == 0, EPX_ERR_CUDA, "the GPU was not told that the communicator has ended");
    return EPX_SUCCESS;
}

static int leave_on_device(struct epx_device *device)
{
    const struct epx_transport *transport = device->transport;

    EPX_FAIL_IF(!epx_proxy_retire(device->proxy), EPX_ERR_TIMEOUT,
                "messages of the old communicator still wait for the GPU");
    if (transport->ops->leave)
        EPX_TRY(expect_end(device));
    EPX_TRY_CUDA(cudaDeviceSynchronize()); /* kernels read what may be freed then */
    return transport->ops->leave ? transport->ops->leave(transport->state) : EPX_SUCCESS;
}

int epx_device_leave_peers(struct epx_device *device)
{
    struct epx_device_scope scope;
    int rc;

    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    rc = leave_on_device(device);
    epx_device_leave(&scope);
    return rc;
}

/* The step is taken on any device if there is no way to this one: other ranks wait for it. */
int epx_device_run_step(const struct epx_device *device, int (*step)(void *argument),
                        void *argument)
{
    struct epx_device_scope scope;
    const int entered = epx_device_enter(device->ordinal, &scope) == cudaSuccess;
    const int rc = step(argument);

    if (entered)
        epx_device_leave(&scope);
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kept_counts.c - counts of a persistent alltoallv in device memory of the library.
 *
 * The copy is work on the stream of the persistent request, in front of all that it starts. What
 * was kept is never given back to CUDA before the communicator is freed: cudaFree waits for the
 * GPU, and the last who uses it may be an operation that completes within EPX_Test. As all have the
 * same room, they are used again.
 */
#include "coll/device/direct/kept_counts.h"

#include <stdlib.h>

#include "coll/device/device_order.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"

/* Numbers that are kept: so many counts and displacements at most, of ranks, or of edges. */
enum { MOST_KEPT = 2 * EPX_MOST_DEVICE_RANKS };
_Static_assert((int)EPX_MOST_EDGES <= (int)EPX_MOST_DEVICE_RANKS, "counts of edges have room");

/* Counts that nobody uses, or new ones. */
static int find_unused(struct epx_device *device, struct epx_kept **result)
{
    struct epx_kept *kept = device->kept;

    while (kept && kept->references)
        kept = kept->next;
    if (!kept) {
        kept = calloc(1, sizeof(*kept));
        EPX_FAIL_IF(!kept, EPX_ERR_NO_MEM, "no memory for counts");
        kept->next = device->kept;
        device->kept = kept;
    }
    if (!kept->counts)
        EPX_TRY_CUDA(cudaMalloc((void **)&kept->counts, MOST_KEPT * sizeof(*kept->counts)));
    *result = kept;
    return EPX_SUCCESS;
}

static int keep_here(struct epx_device *device, const struct epx_call *call,
                     struct epx_kept **result)
{
    const size_t bytes = (size_t)call->graph->destinations.num * sizeof(*call->sendcounts);
    unsigned long long capture, id;
    struct epx_kept *kept = NULL;

    epx_cuda_forget_error();
    EPX_TRY(epx_device_find_capture(call->stream, &capture));
    EPX_FAIL_IF(capture, EPX_ERR_ARG,
                "the stream is in a capture: fixed counts are read when the request is made");
    EPX_TRY(epx_device_check_stream(device, call->stream, &id));
    EPX_TRY(find_unused(device, &kept));
    *result = kept;
    if (bytes == 0)
        return EPX_SUCCESS;
    EPX_TRY_CUDA(
        cudaMemcpyAsync(kept->counts, call->sendcounts, bytes, cudaMemcpyDefault, call->stream));
    EPX_TRY_CUDA(cudaMemcpyAsync((char *)kept->counts + bytes, call->sdispls, bytes,
                                 cudaMemcpyDefault, call->stream));
    return EPX_SUCCESS;
}

int epx_device_keep_counts(struct epx_device *device, const struct epx_call *call,
                           struct epx_kept **kept)
{
    struct epx_device_scope scope;
    int rc;

    EPX_TRY_CUDA(epx_device_enter(device->ordinal, &scope));
    rc = keep_here(device, call, kept);
    epx_device_leave(&scope);
    return rc;
}

static void free_struct(struct epx_kept *kept)
{
    free(kept);
}

void epx_device_free_counts(struct epx_device *device)
{
    while (device->kept) {
        struct epx_kept *kept = device->kept;

        device->kept = kept->next;
        cudaFree(kept->counts);
        kept->counts = NULL;
        kept->free = free_struct;
        if (!kept->references)
            free_struct(kept);
    }
}

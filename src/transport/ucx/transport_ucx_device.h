/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_ucx_device.h - what the files of transport ucx on device memory share where UCX takes
 * that itself. Memory of hosts will do in a test.
 */
#ifndef EPX_TRANSPORT_UCX_TRANSPORT_UCX_DEVICE_H
#define EPX_TRANSPORT_UCX_TRANSPORT_UCX_DEVICE_H

#include <ucp/api/ucp.h>

#include "transport/cuda/device_windows.h"
#include "transport/transport.h"

struct epx_ucx_device;

struct epx_ucx_peer {
    struct epx_ucx_device *ucx;
    ucp_ep_h endpoint;         /* NULL to this rank itself */
    void *sending, *receiving; /* requests, NULL = over */
    ucs_status_t lost;         /* what UCX said when the connection broke */
};

struct epx_ucx_device {
    struct epx_device_windows windows; /* first */
    struct epx_comm *comm;
    ucs_memory_type_t memory;
    ucp_context_h context;
    ucp_worker_h worker;
    char *addresses;           /* what MPI reads and writes */
    struct epx_ucx_peer *peer; /* [R] */
    struct epx_exchange *own;  /* that no kernel posts */
    uint64_t number;           /* of the next of these */
    int connected, parting;
    int flushes_writes; /* of network adapters, before kernels that run see them */

    /* the exchange under way */
    const struct epx_exchange *exchange; /* NULL = none */
    cudaStream_t stream;
    int flushed;        /* the flush has begun */
    void *flush;        /* its request, NULL = over */
    uint64_t *answered; /* [R] pinned */
    int answers_changed;
    int64_t moved_ns;
};

/* transport_ucx_device.c */
/* Collective, agreed: as the operation of struct epx_transport_ops, for memory of this type. */
int epx_ucx_device_create(struct epx_transport *transport, ucs_memory_type_t memory);

/* ucx_exchange.c */
/* As the operations of struct epx_transport_ops. */
int epx_ucx_exchange(void *state, const struct epx_exchange *exchange, void *stream);
int epx_ucx_queued(void *state, int *queued, int *moved);
void epx_ucx_abort(void *state);
/* An exchange of this transport's own, with as many bytes of memory for each rank, and whether it
 * was over in time; ms = 0 is without a bound. */
int epx_ucx_exchange_own(struct epx_ucx_device *ucx, char *memory, int64_t bytes, int64_t ms,
                         int *over);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_ucx_device.h - what transport_ucx_device.c and ucx_exchange.c share: transport ucx
 * where UCX itself takes device memory. A test runs them on host memory.
 */
#ifndef EPX_TRANSPORT_UCX_TRANSPORT_UCX_DEVICE_H
#define EPX_TRANSPORT_UCX_TRANSPORT_UCX_DEVICE_H

#include <ucp/api/ucp.h>

#include "kernels/ring.h"
#include "transport/cuda/device_windows.h"
#include "transport/transport.h"

struct epx_ucx_device;

struct epx_ucx_peer {
    struct epx_ucx_device *ucx;
    ucp_ep_h endpoint;         /* NULL to this rank itself */
    void *sending, *receiving; /* requests of UCX, NULL = ended */
    ucs_status_t lost;         /* what UCX said when the connection broke */
};

struct epx_ucx_device {
    struct epx_device_windows windows; /* first */
    struct epx_comm *comm;
    ucs_memory_type_t memory;
    ucp_context_h context;
    ucp_worker_h worker;
    char *addresses;           /* of the workers; MPI reads and writes them */
    struct epx_ucx_peer *peer; /* [R] */
    struct epx_exchange *own;  /* an exchange that no kernel posts */
    uint64_t number;           /* of the next such exchange */
    int connected, parting;
    int flushes_writes; /* the host flushes stores of network adapters for running kernels */

    /* the exchange under way */
    const struct epx_exchange *exchange; /* NULL = none */
    cudaStream_t stream;
    int flushed;        /* the flush has begun */
    void *flush;        /* request of the flush, NULL = ended */
    uint64_t *answered; /* [R] pinned */
    int answers_changed;
    int64_t moved_ns;
};

/* transport_ucx_device.c */
/* Collective, agreed: `create` of struct epx_transport_ops, for memory of this type. */
int epx_ucx_device_create(struct epx_transport *transport, ucs_memory_type_t memory);

/* ucx_exchange.c */
/* The operations of struct epx_exchange_ops. */
int epx_ucx_exchange(void *state, const struct epx_exchange *exchange, void *stream);
int epx_ucx_queued(void *state, int *queued, int *moved);
void epx_ucx_abort(void *state);
/* Makes an exchange that no kernel posts: sends the first `bytes` of memory to every rank and
 * receives as many behind them. *over tells whether it ended within ms; ms = 0 is no bound. */
int epx_ucx_exchange_own(struct epx_ucx_device *ucx, char *memory, int64_t bytes, int64_t ms,
                         int *over);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_context.h - what the transports of host and of device memory both need of UCX: its
 * version, its errors, a context for a communicator, and the exchange of addresses.
 */
#ifndef EPX_TRANSPORT_UCX_UCX_CONTEXT_H
#define EPX_TRANSPORT_UCX_UCX_CONTEXT_H

#include <ucp/api/ucp.h>

#include "core/comm.h"
#include "transport/transport.h"

/* A context or worker was made, or was not. UCX that found too little for one may abort the process
 * when it is asked for another, so it is not asked again. */
int epx_ucx_made(ucs_status_t status, const char *call);

#define EPX_TRY_UCX(call)                                                                          \
    do {                                                                                           \
        ucs_status_t epx_status_ = (call);                                                         \
        if (epx_status_ != UCS_OK)                                                                 \
            return epx_fail_ucx(epx_status_, #call);                                               \
    } while (0)
int epx_fail_ucx(ucs_status_t status, const char *call);

/* Local: EPX_USABLE if the UCX found at run time is at least as new as the one EPX was built with,
 * and the process has room for it; else why not. */
int epx_ucx_usable(const struct epx_comm *comm, char *why);
/* Local: a context with UCX's own settings, except for what EPX must forbid. `tls` is a value of
 * UCX_TLS, which the user's one takes the place of; NULL = UCX's own. */
ucs_status_t epx_ucx_context(const struct epx_comm *comm, uint64_t features, const char *tls,
                             ucp_context_h *context);
/* Collective, agreed: gathers every rank's bytes in *all, where those of rank r are at r * *stride.
 * *all must be NULL or the result of an earlier call, which is freed. */
int epx_ucx_gather(struct epx_comm *comm, const void *own, size_t own_bytes, size_t *stride,
                   char **all);
/* Collective, agreed: gathers the address of every rank's worker, as epx_ucx_gather does. */
int epx_ucx_addresses(struct epx_comm *comm, ucp_worker_h worker, size_t *stride, char **all);
/* Local: whether UCX tells when the connection to a rank breaks; its fast transports within a
 * machine cannot. */
int epx_ucx_reports(const struct epx_comm *comm, int rank);
/* Local, bounded: closes an endpoint at once, without waiting for messages under way. */
void epx_ucx_close(ucp_worker_h worker, ucp_ep_h endpoint);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.h - which transport a communicator uses, and on which ground. */
#ifndef EPX_COLL_ATTACH_H
#define EPX_COLL_ATTACH_H

#include "transport/transport.h"

/*
 * Collective: attaches the first usable transport for the communicator's memory space, or the
 * one that its hint names. With auto a transport that cannot be set up is passed over, with one
 * warning on rank 0.
 */
int epx_transport_attach(struct epx_comm *comm);
/* Frees the transport and the spare one; on all ranks at the same place, and may wait for peers.
 * Does nothing to the transports of a finished communicator. */
void epx_transport_detach(struct epx_comm *comm);
/* Local, of a finished communicator: ends the transport's threads; all else stays. */
void epx_transport_retire(struct epx_comm *comm);
const char *epx_transport_name(const struct epx_comm *comm);
/* The operations on device memory, NULL on host memory. */
const struct epx_device_ops *epx_transport_device_ops(const struct epx_comm *comm);
/* Whether a route whose windows do not fit may use another transport: not if the user named the
 * transport or a thread progresses it. */
int epx_transport_may_spare(const struct epx_comm *comm);
/* Collective: a transport that needs no shared memory, for such a route. */
int epx_transport_spare(struct epx_comm *comm, struct epx_transport **spare);
/* Tells what is used instead of what is short, and why: a warning of rank 0, the first time. */
void epx_transport_tell(const struct epx_comm *comm, int *told, const char *instead,
                        const char *why);

/* For epx_info: how many lines the list has, and a report on one, from 0. Collective. */
int epx_transport_lines(void);
struct epx_transport_report {
    const char *name, *memory, *description;
    int usable;
    char why[EPX_WHY_MAX];
};
int epx_transport_report(const struct epx_origin *origin, int index,
                         struct epx_transport_report *report);

#endif

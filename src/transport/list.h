/* SPDX-License-Identifier: BSD-3-Clause */
/* list.h - the list of transports. */
#ifndef EPX_TRANSPORT_LIST_H
#define EPX_TRANSPORT_LIST_H

#include "base/param.h"

extern const struct epx_transport_ops epx_transport_lsa;
extern const struct epx_transport_ops epx_transport_ipc;
extern const struct epx_transport_ops epx_transport_nccl;
extern const struct epx_transport_ops epx_transport_ucx_device;
extern const struct epx_transport_ops epx_transport_bounce;
extern const struct epx_transport_ops epx_transport_shm;
extern const struct epx_transport_ops epx_transport_ucx;
extern const struct epx_transport_ops epx_transport_mpi;

struct epx_listed {
    const char *name;
    enum epx_memory_kind memory;
    const struct epx_transport_ops *ops; /* NULL = not in this library */
    int is_built;                        /* part of this build */
    int hier; /* uses ops between nodes only, and shared memory inside them */
    const char *description;
};

/* In the order that auto tries them for a memory space; ended by a NULL name. */
extern const struct epx_listed epx_transports[];

#endif

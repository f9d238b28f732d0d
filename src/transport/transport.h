/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h - what moves bytes. A transport is one file with a table of operations, one line
 * in list.c and one line in the build.
 */
#ifndef EPX_TRANSPORT_TRANSPORT_H
#define EPX_TRANSPORT_TRANSPORT_H

#include "core/comm.h"

enum { EPX_WHY_MAX = 256 };

struct epx_direct;
struct epx_exchange;
struct epx_staged;
struct epx_hier;
struct epx_device;

struct epx_transport_ops {
    enum epx_memory_kind memory;

    /* required */
    /* Whether the communicator's ranks can use it as far as this rank sees; if not, why. Called by
     * all ranks at the same place, without an error to agree on before. */
    int (*usable)(struct epx_comm *comm, char *why);
    /* Collective, agreed: *state stays NULL or half-built on error, free takes both. */
    int (*create)(struct epx_comm *comm, void **state);
    /* On all ranks at the same place, and never of a finished communicator; may wait for peers. */
    void (*free)(void *state);
    const struct epx_liveness_ops *liveness; /* NULL on device memory: epx_device_ops has it */
    /* Collective, agreed. Windows of a staged transport are private memory. */
    int (*window_create)(void *state, size_t bytes, struct epx_window **window);
    /* Local. */
    void (*window_free)(void *state, struct epx_window *window);
    /* Collective: gives the memory of freed windows back, when on all ranks nothing is in flight
     * and the same windows have been freed. NULL = window_free does. */
    void (*reclaim)(void *state);

    /* direct: ranks store into each other's windows, flags are C11 atomics in them */
    int direct;
    int threads; /* can be progressed by a thread of the library: no call of MPI */

    /* staged: messages, nonblocking; done tells when all that was started has ended */
    int (*allgather)(void *state, const void *send, void *recv, int bytes);
    int (*alltoall)(void *state, const void *send, void *recv, int bytes);
    /* Counts and displacements in bytes, [R] each; the arrays stay until done. */
    int (*alltoallv)(void *state, const void *send, const int *sendcounts, const int *sdispls,
                     void *recv, const int *recvcounts, const int *rdispls);
    int (*done)(void *state, int *done);
    /* Collective, agreed, once: the transport's memory for the two stages; a rank then has the same
     * displacement in both and on all ranks. NULL, or not called = any memory will do. */
    int (*stages)(void *state, size_t bytes, char **home_stage, char **expert_stage);
    /* Where to put what the next collective, an alltoallv, takes to a rank, before it is started;
     * NULL = the rank still needs that memory. Given are the rank's place in the stage it goes
     * from, and this rank's in the stage it goes into, which may be stored into from now on, and
     * from the start of any other collective. Without this operation it is the first of them.
     * Stores that bypass the caches are fenced before the collective is started. */
    char *(*place)(void *state, int rank, char *from, char *into);
    /* For transports on top of one with threads and stages: where a byte of this rank's stages is
     * on another rank, as mapped here, NULL = not; whether the block of a rank in the collective
     * under way has come, as the last call of done saw it. */
    char *(*mapped)(void *state, int rank, char *own);
    int (*came)(void *state, int rank);

    /* messages between device memories; called by the proxy's thread alone, on its device */
    /* Starts an exchange with all other ranks; what this one sends to itself is on the stream
     * already. What it queues there comes before the next. */
    int (*exchange)(void *state, const struct epx_exchange *exchange, void *stream);
    /* Goes on with it: whether all of it is queued on the stream, and whether anything moved.
     * NULL = exchange queues all. */
    int (*queued)(void *state, int *queued, int *moved);
    /* Ends what waits for peers on the stream, after the communicator finished; may be NULL. */
    void (*abort)(void *state);
};

struct epx_transport {
    const char *name, *description;
    const struct epx_transport_ops *ops; /* with hier, of the messages between nodes */
    void *state;
    struct epx_direct *direct; /* the ground of the algorithm: one of these three */
    struct epx_staged *staged;
    struct epx_device *device;
    struct epx_hier *hier; /* beside staged: shared memory inside each node */
    const struct epx_device_ops *device_ops; /* device memory */
};

extern const struct epx_transport_ops epx_transport_shm;
extern const struct epx_transport_ops epx_transport_ucx;
extern const struct epx_transport_ops epx_transport_mpi;

/* The transport that moves messages of pinned host memory for device communicators, or NULL. */
const struct epx_transport_ops *epx_transport_host_messages(void);

/* Collective, agreed: a window that no other rank reaches. */
int epx_transport_private_window(struct epx_comm *comm, size_t bytes, struct epx_window **window);

/*
 * Collective: attaches the first usable transport for the communicator's memory space, or the
 * one that its hint names. With auto a transport that cannot be set up is passed over.
 */
int epx_transport_attach(struct epx_comm *comm);
/* Local. */
void epx_transport_detach(struct epx_comm *comm);
/* Local, of a finished communicator: ends the transport's threads; all else stays. */
void epx_transport_retire(struct epx_comm *comm);
const char *epx_transport_name(const struct epx_comm *comm);
/* The operations on device memory, NULL on host memory. */
const struct epx_device_ops *epx_transport_device_ops(const struct epx_comm *comm);
/* Local: gives a request on device memory its functions; 0 on host memory. */
int epx_device_prepare(struct epx_request *request);
/* The transport that an operation uses. */
struct epx_transport *epx_transport_of(const struct epx_request *request);
/*
 * Collective: a transport that needs no shared memory, for a route whose windows do not fit.
 * *spare stays NULL if the user named the transport or a thread progresses it.
 */
int epx_transport_spare(struct epx_comm *comm, struct epx_transport **spare);

/* Local: a blank and the name of each transport that is part of the build. */
void epx_transport_list(char *text, size_t bytes);

/* For epx_info. Collective over comm; index 0, 1, ...; EPX_ERR_ARG past the end. */
struct epx_transport_report {
    const char *name, *memory, *description;
    int usable;
    char why[EPX_WHY_MAX];
};
int epx_transport_report(MPI_Comm comm, int index, struct epx_transport_report *report);

#endif

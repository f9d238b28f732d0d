/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport.h - what moves bytes. A transport is one file with a table of operations, one line
 * in list.c and one line in the build.
 */
#ifndef EPX_TRANSPORT_TRANSPORT_H
#define EPX_TRANSPORT_TRANSPORT_H

#include "core/comm.h"
#include "transport/list.h"

enum { EPX_WHY_MAX = 256 };

/* SHORT: the machine gives this process too little, which `auto` warns of. */
enum epx_usable { EPX_UNUSABLE, EPX_USABLE, EPX_SHORT };

struct epx_copies;
struct epx_device;
struct epx_device_ops;
struct epx_direct;
struct epx_exchange;
struct epx_ground;
struct epx_hier;
struct epx_staged;
struct epx_transport;

/* One block for, or from, each rank in an alltoallv, or each of some ranks; the arrays stay until
 * it is done. */
struct epx_blocks {
    char *base;
    const int *counts, *displs; /* [R], or [ranks], bytes */
};

/* Ranks in an order that only this rank knows. */
struct epx_some_ranks {
    int num;
    const int *rank; /* [num] each once */
};

/*
 * Messages between hosts, nonblocking; done tells when all that was started has ended. The caller
 * fences stores that bypass the caches before it starts a collective.
 */
struct epx_message_ops {
    int (*allgather)(void *state, const void *send, void *recv, int bytes);
    int (*alltoall)(void *state, const void *send, void *recv, int bytes);
    int (*alltoallv)(void *state, struct epx_blocks send, struct epx_blocks recv);
    /* An alltoallv of some ranks alone: any two ranks name each other, or neither does. A rank
     * sends itself nothing. Leaves the stages that the transport gave to the caller. */
    int (*exchange)(void *state, struct epx_some_ranks ranks, struct epx_blocks send,
                    struct epx_blocks recv);
    int (*done)(void *state, int *done);

    /* the rest may be NULL */
    /* Collective, agreed, once: gives the transport's memory for the two stages. The caller then
     * puts a rank at the same displacement in both stages, on all ranks. NULL, or not called = any
     * memory will do. */
    int (*stages)(void *state, size_t bytes, char **home_stage, char **expert_stage);
    /* Before an alltoallv: where to write the rows for `rank`; NULL = the rank still needs that
     * memory. `from` is the rank's place in the stage that the rows leave from, `into` this rank's
     * place in the stage they arrive in. Peers may store into `into` from now on, and from the
     * start of any other collective. Without this operation the answer is `from`. */
    char *(*place)(void *state, int rank, char *from, char *into);
    /* For a transport on top of this one: where rank's counterpart of `own`, an address in this
     * rank's stages, is mapped here; NULL = it is not mapped. */
    char *(*mapped)(void *state, int rank, char *own);
    /* Whether a rank's block of the collective under way had come when done was last called. */
    int (*came)(void *state, int rank);
};

/* Messages between device memories; called by the proxy's thread alone, on its device. */
struct epx_exchange_ops {
    /* The copies that kernels make for the exchanges, after create; the proxy then calls no CUDA
     * and has no stream: what is said of it below is said of these copies, and they are queued once
     * they have been made. NULL = the transport queues its copies on the proxy's stream. */
    struct epx_copies *(*copies)(void *state);
    /* Starts an exchange with the other ranks that take part (ring.h); what this rank sends to
     * itself is on the stream already. What start queues on the stream is done before the next
     * exchange. */
    int (*start)(void *state, const struct epx_exchange *exchange, void *stream);
    /* Moves the exchange on: sets *queued once all of it is queued on the stream, and *moved if it
     * got on. NULL = start queues all. */
    int (*queued)(void *state, int *queued, int *moved);
    /* Ends what waits for peers on the stream, after the communicator finished; may be NULL. */
    void (*abort)(void *state);
};

/*
 * A transport. With `messages` ranks send from host to host memory, with `exchanges` from device to
 * device memory; with neither they store into each other's windows: such a transport is direct.
 * Flags in windows of host memory are C11 atomics.
 */
struct epx_transport_ops {
    enum epx_memory_kind memory;
    int threads; /* a thread of the library may progress it: it never calls MPI */
    /* EPX_USABLE (1) if the communicator's ranks can use it as far as this rank sees; else why not.
     * Called on all ranks or on none. */
    int (*usable)(struct epx_comm *comm, char *why);
    size_t state_bytes; /* of the transport's state, zeroed before create */
    /* Collective, agreed: fills the state, and on host memory the liveness. */
    int (*create)(struct epx_transport *transport);
    /* Called on all ranks at the same place, never for a finished communicator; may wait for peers.
     * Takes a state that is zeroed or that create left half-built; its own memory stays. */
    void (*free)(void *state);
    /* window_create is collective and agreed, window_free local. Windows of a direct transport are
     * zeroed. NULL, for a transport with messages on host memory: windows are private memory. */
    int (*window_create)(void *state, size_t bytes, struct epx_window **window);
    void (*window_free)(void *state, struct epx_window *window);
    /* Local, of a communicator that has ended and that its survivors have left (comm->lost tells
     * who is none): from now on no store of another rank is seen in this rank's part of the window;
     * called with NULL first, for all windows but those of EPX_Alloc_mem. A transport that has it
     * frees all that it has then without its peers. NULL = it cannot promise that; an error that is
     * not logged says why. */
    int (*window_fence)(void *state, struct epx_window *window);
    /* Local, on device memory, of a communicator that has ended, when nothing on this rank uses the
     * memory of other ranks any more: unmaps it. NULL = none is mapped, or there is no fence. */
    int (*leave)(void *state);
    /* Collective: gives the memory of freed windows back; called when all ranks have freed the same
     * windows and nothing is in flight. NULL = window_free gives it back. */
    void (*reclaim)(void *state);
    const struct epx_message_ops *messages;
    const struct epx_exchange_ops *exchanges;
};

/* A transport of a communicator, and the ground of its algorithms (coll/ground.h). */
struct epx_transport {
    const char *name, *description;
    struct epx_comm *comm;
    const struct epx_transport_ops *ops;
    void *state;
    struct epx_liveness liveness; /* made by create; on device memory by the ground */
    const struct epx_ground *ground;
    /* what the ground made: direct, staged or device, and hier beside staged */
    struct epx_direct *direct;
    struct epx_staged *staged;
    struct epx_device *device;
    struct epx_hier *hier;
    const struct epx_device_ops *device_ops; /* NULL on host memory */
};

/* The transport that moves messages of pinned host memory for device communicators, or NULL. */
const struct epx_transport_ops *epx_transport_host_messages(void);

/* The create is collective and agreed; the free is local and takes NULL. */
int epx_transport_window_create(const struct epx_transport *transport, size_t bytes,
                                struct epx_window **window);
void epx_transport_window_free(const struct epx_transport *transport, struct epx_window *window);

/* Local: a blank and the name of each transport that is part of the build. */
void epx_transport_list(char *text, size_t bytes);

#endif

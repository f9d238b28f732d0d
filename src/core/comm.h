/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm.h - the communicator: ranks and nodes, hints, the queue of its operations, and how it
 * ends when a rank does not answer.
 */
#ifndef EPX_CORE_COMM_H
#define EPX_CORE_COMM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "base/param.h"
#include "base/stats.h"
#include "control/control_mpi.h"
#include "core/handle.h"
#include "core/health/trace.h"
#include "core/health/wait_times.h"
#include "core/lock.h"

struct epx_contact_group;
struct epx_graph;
struct epx_survivors;
struct epx_transport;
struct epx_request;
struct epx_route;

/*
 * How a transport tells the living ranks from the dead. All operations are local, brief and called
 * with the lock held; none of them calls MPI if a thread may progress the transport.
 */
struct epx_liveness_ops {
    /* Shows the peers that this rank lives, and its position. Returns 1 and sets message if a rank
     * has ended the communicator. */
    int (*beat)(void *state, uint64_t epoch, char *message);
    /* Asks all ranks whether they live. Until the next probe, answered() then tells whether a rank
     * has answered, and with what position. */
    void (*probe)(void *state);
    int (*answered)(void *state, int rank, uint64_t *epoch);
    /* Ends the communicator on all ranks; message may become that of a rank that did so first. */
    void (*announce)(void *state, char *message);
    /* Before announce: the rank to blame is known. NULL = the message tells it. */
    void (*blame)(void *state, int rank);
    /* The rank to blame after a probe, -1 = unknown; NULL = one that did not answer, else the one
     * furthest behind. */
    int (*culprit)(void *state);
    /* The rank that the kernels of the operation at the head wait for, -1 = none is known. NULL
     * where operations have no kernels. */
    int (*behind)(void *state);
};

struct epx_liveness {
    const struct epx_liveness_ops *ops; /* NULL before there is a transport */
    void *state;
};

/* Time spent waiting without progress; see epx_comm_clock. */
struct epx_clock {
    int64_t last_pass_ns; /* 0 = stopped */
    int64_t waited_ns;
    int64_t watched_ns; /* the same without the time in which this host was elsewhere */
    int64_t
        warn_asked_ns; /* watched_ns when the peers were asked for whom to warn; 0 = not asked */
    int warned;
    uint64_t looks;    /* passes since the peers were asked who lives; 0 = not asked */
    uint64_t question; /* the number of that question, see questions below */
};

/* What MPI reads and writes in the collectives of agree.h. */
struct epx_agreement {
    int32_t code;
    char message[EPX_MAX_ERROR_STRING];
    int64_t value[2];
    int64_t *gathered; /* [size] */
};

struct epx_comm {
    struct epx_handle handle; /* until the user frees it; requests may hold it longer */
    int references;
    int rank, size;
    int by_mpi;      /* MPI started the ranks; else user and traffic are not set */
    int without_mpi; /* it is counted in epx_comm_without_mpi */
    MPI_Comm user;   /* duplicate with the user's error handler; the library never sends on it */
    struct epx_traffic traffic; /* for the control plane */
    struct epx_control control; /* collectives of agree.h, letters */
    struct epx_agreement agreement;
    struct epx_params params;
    int *node; /* [size] node of each rank, numbered by lowest rank */
    int num_nodes;
    int *real_node; /* [size] and real_nodes: the nodes as MPI tells, whatever the hints pretend */
    int real_nodes;
    int nodes_share_memory; /* no pretended node spans several real ones */

    struct epx_transport *transport;
    struct epx_transport *spare; /* for routes that found too little shared memory */
    struct epx_liveness liveness;
    struct epx_liveness birth; /* while the ranks make the communicator (birth.h) */

    struct epx_request *first, *last; /* queue, in call order */
    uint64_t epoch;                   /* operations queued so far that all ranks take part in */
    uint64_t queued;                  /* operations queued so far; the same on all ranks */
    uint64_t position;                /* place of the operation at the head */
    struct epx_clock clock;
    uint64_t questions; /* how often the peers were asked who is alive, by any clock */
    uint64_t *answers;  /* [size] the last question before the current one that each answered */

    struct epx_segment *segments;
    int next_segment, next_route; /* numbers, the same on all ranks */
    struct epx_route *routes;     /* not yet freed by the user */
    struct epx_route *buried;     /* freed after the communicator finished */
    struct epx_graph *everyone;   /* the list of all ranks, for EPX_Alltoallv */
    void (*everyone_free)(struct epx_graph *everyone);
    struct epx_graph *graphs; /* not yet freed by the user */
    struct epx_graph *buried_graphs;

    int told_routes, told_memory; /* that they are short of shared memory */
    EPX_Stats stats;
    struct epx_waits waits;
    struct epx_traced traced;
    int async_error;     /* the first that EPX_Comm_get_async_error did not give yet */
    char *async_message; /* its text, NULL without memory for it */
    char message[EPX_MAX_ERROR_STRING]; /* the last error */
    atomic_int finished;                /* 0, or the code that every operation completes with */
    char finish_message[EPX_MAX_ERROR_STRING];
    int64_t finished_ns;             /* when finished was set */
    struct epx_survivors *survivors; /* of a finished one; NULL = it was never to be shrunk */
    int fenced;        /* no other rank stores into its memory any more, though it is finished */
    char *lost;        /* [size] whether the others went on without it; NULL = it was not shrunk */
    int *parent_ranks; /* [size] in the communicator that it was shrunk from; NULL = in none */

    int threaded;
    int thread_stops;
    pthread_t thread;
    /* in a list of the process, see epx_comm_enlist */
    enum epx_listed_as { EPX_UNLISTED, EPX_LISTED_IDLE, EPX_LISTED_BUSY } listed;
    int awaited; /* threads that wait in agree.h */
    struct epx_comm *next, *previous;
};

/* What a communicator is made from: one of MPI, or a group, if that is not NULL. */
struct epx_origin {
    MPI_Comm comm;
    const struct epx_contact_group *group;
};

/* Local: an empty communicator. If there is no memory for it, *own_rc becomes the error, and the
 * result is the spare one (comm.c), or NULL if that is in use. */
struct epx_comm *epx_comm_allocate(const struct epx_params *params, int *own_rc);
/*
 * Collective, first: takes the ranks of a communicator of MPI, which is duplicated, or of a group;
 * compares the hints, finds the nodes, and lists the communicator. own_rc is the result so far on
 * this rank; if it is an error on one rank, every rank fails. After what is added to the
 * communicator comes epx_birth_settle, then epx_birth_end.
 */
int epx_comm_begin(struct epx_comm *comm, const struct epx_origin *origin, int own_rc);
/*
 * Frees the MPI communicators; the last request that holds comm frees its memory. A finished
 * communicator is kept for good: late peers and MPI may still touch its memory.
 */
void epx_comm_close(struct epx_comm *comm);
void epx_comm_retain(struct epx_comm *comm);
void epx_comm_release(struct epx_comm *comm);

/*
 * The communicators that are progressed, in two lists: the busy ones, which are being made, have
 * requests, or have threads that wait, and the idle ones. Call epx_comm_relist when one of these
 * begins; it ends for the list with the next pass, so that one operation after another moves
 * nothing. Call all but the first two with the lock held.
 */
void epx_comm_enlist(struct epx_comm *comm);
void epx_comm_unlist(struct epx_comm *comm);
void epx_comm_relist(struct epx_comm *comm);

/* Keeps an error for EPX_Comm_get_async_error, unless it has one that it did not give yet. Taking
 * gives its code, EPX_SUCCESS if there is none, and makes its text the communicator's message. */
void epx_comm_note_error(struct epx_comm *comm, int error, const char *message);
int epx_comm_take_error(struct epx_comm *comm);
/* Counts one that MPI does not make, until its memory is freed. */
void epx_comm_does_without_mpi(struct epx_comm *comm);
/* Any communicator that MPI made; NULL = there is none. */
struct epx_comm *epx_comm_any_by_mpi(void);
/* How many there are, freed ones that requests hold too, that MPI did not make. */
int epx_comm_without_mpi(void);
/* From now on a child of fork has none of this process's communicators and handles. */
void epx_watch_forks(void);
/* The first busy one; its member next leads to the others. */
struct epx_comm *epx_comm_first_busy(void);
/* The idle one whose turn it is: all take turns. NULL = there is none. */
struct epx_comm *epx_comm_next_idle(void);

/* Whether its memory has to stay when it is freed: late peers may still touch it. */
static inline int epx_comm_keeps_memory(const struct epx_comm *comm)
{
    return comm->finished && !comm->fenced;
}

/* Whether its collectives are those of MPI: one that was given up may still write. */
static inline int epx_comm_agrees_by_mpi(const struct epx_comm *comm)
{
    return comm->control.ops && !comm->control.ops->free;
}

enum epx_distance epx_comm_distance(const struct epx_comm *comm, int rank);

#endif

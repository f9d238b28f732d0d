/* SPDX-License-Identifier: BSD-3-Clause */
/* request.h - one nonblocking operation: its arguments, its place in the queue, its outcome. */
#ifndef EPX_CORE_REQUEST_H
#define EPX_CORE_REQUEST_H

#include "base/field.h"
#include "core/comm.h"
#include "core/graph/graph.h"

enum epx_verb {
    EPX_VERB_ROUTE_TOKENS,
    EPX_VERB_ROUTE_DISPATCH,
    EPX_VERB_ROUTE_DISPATCH_FIELDS,
    EPX_VERB_DISPATCH,
    EPX_VERB_DISPATCH_FIELDS,
    EPX_VERB_COMBINE,
    EPX_VERB_DISPATCH_BACKWARD,
    EPX_VERB_COMBINE_BACKWARD,
    EPX_VERB_ALLTOALLV,
    EPX_VERB_NEIGHBOR_ALLTOALLV,
    EPX_NUM_VERBS,
};

/* Every operation begins with POST and AGREE, even one that is bound to fail, so that no rank ever
 * waits for a ready that another did not post. The phases of the verbs follow. */
enum { EPX_PHASE_POST, EPX_PHASE_AGREE, EPX_PHASE_VERB };

/* What is under way of an operation that is done as two, one after the other; for all others
 * EPX_HALF_NONE. EPX_Route_dispatch, or EPX_Route_dispatch_fields, is a routing, then a dispatch:
 * coll/route_dispatch.c has the rules. EPX_Combine_from with weights of the home ranks sends these,
 * then sums: coll/combine_weights.c. */
enum epx_half {
    EPX_HALF_NONE,
    EPX_HALF_ROUTING,
    EPX_HALF_DISPATCH,
    EPX_HALF_WEIGHTS,
    EPX_HALF_SUMS
};

/* What an operation was called with. */
struct epx_call {
    enum epx_verb verb;
    EPX_Stream stream;
    EPX_Datatype datatype;    /* of the first field */
    struct epx_fields fields; /* the rows; none for a routing */
    int64_t row_bytes;        /* of all fields together */
    int num_tokens;           /* T of the routing that the call refers to */
    const void *expert_ids;   /* of a routing */
    const void *forward_in;   /* combine backward: the rows that combine was given */
    const float *weights_in;
    float *weights_out;
    int num_biases; /* combine: rows of the home rank that its sums start from */
    const void *biases[EPX_MAX_BIASES];
    const float *token_weights;          /* combine: of the home rank, instead of weights_in */
    struct epx_graph *graph;             /* alltoallv, here and below: who sends to whom */
    struct epx_kept *kept;               /* of a persistent request; NULL = counts are the user's */
    const int64_t *sendcounts, *sdispls; /* [destinations] */
    int64_t *recvcounts, *rdispls;       /* [sources] */
    int64_t *told_counts, *told_displs;  /* the user's, if those above are copies */
    int64_t recv_capacity;               /* rows of the receive buffer, of the routing too */
    int64_t num_rows; /* rows that the routing uses, -1 = not known when it was called */
    int32_t *counts;  /* of a routing: as EPX_Route_set_counts has set; or NULL */
};

/* Where a receiver lets a sender store rows: the row of its receive buffer, and where that is. */
struct epx_grant {
    uint64_t number; /* the operation from which on the places stay, 0 = they may change */
    int64_t row;
    int64_t segment, offset;
};

/* On host memory, what a persistent request with fixed counts remembers of its partners from one
 * operation to the next. */
struct epx_fixed {
    uint64_t known; /* the operation from which on the sources' counts are; 0 = none */
    int64_t *rows;  /* [sources] these counts */
    int64_t sent[EPX_NUM_DISTANCES]; /* rows that this rank sends so far */
    struct epx_grant *grants;        /* [destinations] on the direct ground */
    char *linked; /* [peers] on the staged ground: the counts both ways are known */
};

/* Counts and displacements that a persistent request keeps in the communicator's memory space, and
 * that operations which it has started send by. */
struct epx_kept {
    int references;                      /* under the lock; 0 = nobody uses them */
    int64_t *counts;                     /* [2][destinations] counts, then displacements */
    struct epx_fixed *fixed;             /* host memory: what ranks know of each other's counts */
    void (*free)(struct epx_kept *kept); /* called when nobody uses them any more; NULL = whoever
                                            made them uses them again */
    struct epx_kept *next;               /* of the same device */
};

/* An operation; or a persistent request, which is never queued: it has the call of the operations
 * that it starts. */
struct epx_request {
    struct epx_handle handle;
    struct epx_comm *comm;
    struct epx_route *route; /* NULL for alltoallv */
    struct epx_call call;
    /* One step of the operation; sets *moved if it got on, complete when it is through. */
    int (*progress)(struct epx_request *request, int *moved);
    /* On host memory: whether the step that got nowhere waits for a rank; NULL = it waits for
     * waiting_for alone. */
    int (*lacks)(const struct epx_request *request, int rank);
    int (*launch)(struct epx_request *request);      /* queues its kernels; NULL on host memory */
    int (*ended)(const struct epx_request *request); /* its kernels ended; NULL on host memory */
    struct epx_kept *kept;                           /* NULL = it holds none */
    int persistent;
    struct epx_request *started; /* the operation of a persistent request; NULL = it is inactive */
    struct epx_request *spare;   /* what a persistent request starts next; NULL = not made yet */
    struct epx_request *starter; /* the persistent request that has this operation, or NULL */

    /* all below is zeroed when the operation of a persistent request is started again */
    uint64_t place; /* among all operations of the communicator, from 1 */
    uint64_t epoch; /* among those of its graph, or those that all ranks take part in */
    int64_t called_ns, agreed_ns; /* for a trace */
    int phase;
    enum epx_half half;
    int weighted;    /* what the ranks have agreed on: pair weights travel */
    int waiting_for; /* the rank that the last step waited for, or -1 */
    int complete;
    int detached; /* nobody waits for it: it is freed when it is complete */
    int named;    /* within EPX_Waitall: its place in the list, from 1 */
    int error;
    int64_t received_rows;
    /* device memory */
    int (*queue_rest)(struct epx_request *request); /* queues kernels that launch has left for
                                                       when somebody waits; NULL = none are left */
    int captured;                                   /* in a CUDA graph: never completes */
    int completion; /* where its outcome is written, with this number */
    uint32_t number;
    uint32_t polls;
    struct epx_request *next;                   /* in the queue */
    struct epx_request *live_next, **live_link; /* all requests that the user holds */
    char message[EPX_MAX_ERROR_STRING];         /* "" = none, of which the rest is not zeroed */
};

const char *epx_verb_name(enum epx_verb verb);

/* Whether the operation was given a list of fields; whether it makes a routing; whether it sends
 * tokens to the experts. */
static inline int epx_verb_has_fields(enum epx_verb verb)
{
    return verb == EPX_VERB_DISPATCH_FIELDS || verb == EPX_VERB_ROUTE_DISPATCH_FIELDS;
}

static inline int epx_verb_routes(enum epx_verb verb)
{
    return verb == EPX_VERB_ROUTE_TOKENS || verb == EPX_VERB_ROUTE_DISPATCH ||
           verb == EPX_VERB_ROUTE_DISPATCH_FIELDS;
}

static inline int epx_verb_dispatches(enum epx_verb verb)
{
    return verb == EPX_VERB_DISPATCH || verb == EPX_VERB_ROUTE_DISPATCH ||
           epx_verb_has_fields(verb);
}

/* Whether an operation is in its second half, or in a first one that began with the ranks'
 * agreement. */
static inline int epx_half_has_agreed(enum epx_half half)
{
    return half > EPX_HALF_ROUTING;
}

/* Whether it is an exchange without a route. */
static inline int epx_verb_exchanges(enum epx_verb verb)
{
    return verb == EPX_VERB_ALLTOALLV || verb == EPX_VERB_NEIGHBOR_ALLTOALLV;
}

/* Whether rows are added that come home from the experts. */
static inline int epx_verb_adds(enum epx_verb verb)
{
    return verb == EPX_VERB_COMBINE || verb == EPX_VERB_DISPATCH_BACKWARD;
}

/* Whether it computes with elements of rows, so that these must be numbers. */
static inline int epx_verb_computes(enum epx_verb verb)
{
    return epx_verb_adds(verb) || verb == EPX_VERB_COMBINE_BACKWARD;
}

/* A request that holds its communicator and route; NULL if there is not enough memory. */
struct epx_request *epx_request_create(struct epx_comm *comm, struct epx_route *route);
void epx_request_free(struct epx_request *request);
/* With the lock held: an operation of a persistent request, to be submitted, which is the one that
 * it started before, if the user has let that complete. NULL if there is not enough memory. */
struct epx_request *epx_request_again(struct epx_request *persistent);
/* With the lock held: the user has let a request complete. An operation of a persistent one is
 * kept, any other is freed. */
void epx_request_done(struct epx_request *request);
/* Returns how many requests of the communicator, persistent ones or others, the user has not let
 * complete, or freed. What a persistent request has started counts as one of the others. */
int epx_request_count(const struct epx_comm *comm, int persistent);
/* With the lock held: whether a routing of the route is in the queue. */
int epx_request_routes(const struct epx_route *route);
/* Gives a request its call; it then holds the graph, and the counts that are kept. */
void epx_request_set_call(struct epx_request *request, const struct epx_call *call);
/* For a request, which then holds what is kept; NULL = nothing. */
void epx_request_keep(struct epx_request *request, struct epx_kept *kept);
/* Frees the requests of communicators made by MPI that nobody waited for. */
void epx_request_free_all_by_mpi(void);

/* Frees a request that is in no queue and not complete. */
void epx_request_abandon(struct epx_request *request);
/* Local, with the lock held, when somebody waits for the request: queues what its launch has left
 * for then. An error of an operation outside captures has ended the communicator. */
int epx_request_queue_rest(struct epx_request *request);
/* Completes the request at the head of the queue with this error and the thread's last message. */
void epx_request_complete(struct epx_request *request, int error);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue.h - what Python calls by ctypes. Communicators and routes are numbers there, so that a freed
 * one is an error and not a crash. A function returns an EPX error code; the thread that got it
 * reads its text by epx_python_message.
 */
#ifndef EPX_PYTHON_GLUE_H
#define EPX_PYTHON_GLUE_H

#include <epx.h>
#include <pthread.h>
#include <stdarg.h>

#include "glue_mpi.h"

#define EPX_PYTHON_TRY(call)                                                                       \
    do {                                                                                           \
        int epx_rc_ = (call);                                                                      \
        if (epx_rc_ != EPX_SUCCESS)                                                                \
            return epx_rc_;                                                                        \
    } while (0)

enum { EPX_PYTHON_INT32 = 32, EPX_PYTHON_INT64 = 64 }; /* types that are not EPX_Datatype */
enum { EPX_PYTHON_UNFINISHED = -1 };                   /* no error: call again */

struct epx_python_comm {
    EPX_Comm comm;
    int on_device;
    void *context; /* CUDA's, on device memory */
    int size;
    int64_t timeout_ms;
    struct epx_python_ranks *ranks;    /* if MPI started the ranks, else NULL */
    EPX_Allgather_function *allgather; /* if something else did; NULL too after a shrink */
    int is_in_xla;                     /* a handler of xla.c runs an operation on host memory */
};

/* CUDA's event behind the copies of what the view shows, or NULL, and the capture that they were
 * queued in, 0 if in none. */
struct epx_python_copied {
    void *event;
    uint64_t capture;
};

/*
 * A key names a routing of the route: the value of a counter that all ranks raise at the same
 * calls. current is the key of what EPX_Route_tokens was called for last, 0 if that failed.
 */
struct epx_python_route {
    EPX_Route route;
    EPX_Route_view view;
    struct epx_python_comm *owner;
    int comm; /* the owner's number */
    int top_k;
    EPX_Layout layout;
    int zero_unused;
    int64_t capacity; /* what EPX_Route_set_capacity set last */
    int64_t current;
    int64_t last_key;
    int64_t num_tokens; /* this and the next: of the current routing */
    int64_t routed_capacity;
    int32_t *told;    /* what EPX_Route_set_counts has, on device memory; or NULL */
    uint64_t capture; /* of a stream, in which the current routing was queued; 0 = none */
    int was_captured; /* any routing ever was */
    int is_begun;     /* an operation that only began has routed again: nobody awaits its routing */
    struct epx_python_copied copied[2]; /* the latest copies in no capture, and in any */
    pthread_mutex_t reading;            /* of unread: any thread may wait for an operation */
    struct epx_python_work *unread;     /* on host memory: what the view shows is not copied yet */
};

struct epx_python_graph {
    EPX_Graph graph;
    struct epx_python_comm *owner;
    int comm; /* the owner's number */
    int indegree;
    int outdegree;
};

/* Tensors for what the view of a routing shows, in the memory of the communicator. */
struct epx_python_view {
    int32_t *counts;      /* [L] rows of each expert */
    int32_t *offsets;     /* first row of each expert [L+1]; in rank-major 0, then rows of each
                             rank [R] */
    int32_t *row_experts; /* in rank-major [capacity][K], of each row its local experts or -1; or
                             NULL */
    int64_t adds_up;      /* on host memory, in rank-major: offsets are sums, unused rows have -1 */
};

/* An operation that began and has not ended. */
struct epx_python_work {
    int64_t route; /* -1 if there is none */
    int64_t key;
    int comm;
    EPX_Request routing, request;
    struct epx_python_view view;
    int copies;   /* whether what the view shows was copied by the stream that the work began on */
    void *copied; /* CUDA's event behind these copies, for the stream that waits; or NULL */
    int rc;       /* of the routing, if it was waited for already */
    int started;  /* what the call of the operation returned, or its request */
    int is_late;  /* somebody waited for a slice of time already */
    int is_over;  /* with this outcome, whose text is the message */
    int outcome;
    char message[EPX_MAX_ERROR_STRING];
    int64_t number;
    struct epx_python_work *next; /* in a list of the process */
};

/* A tensor without gaps between its elements; type 0 = there is none. */
struct epx_python_matrix {
    void *data;
    int64_t rows;
    int64_t columns;
    int64_t type;
};

enum epx_python_verb {
    EPX_PYTHON_DISPATCH,
    EPX_PYTHON_COMBINE,
    EPX_PYTHON_DISPATCH_BACKWARD,
    EPX_PYTHON_COMBINE_BACKWARD,
    EPX_PYTHON_ROUTE,       /* a routing alone */
    EPX_PYTHON_DISPATCH_BY, /* a dispatch by a routing that there is */
    EPX_PYTHON_VERBS
};

enum { EPX_PYTHON_FIELDS = 3 }; /* beside the rows of a dispatch */

/* Every member has 8 bytes: Python packs them one after the other, and compares the size. */
struct epx_python_operation {
    int64_t verb;
    int64_t route;
    int64_t capacity;  /* rows of the receive buffer */
    EPX_Stream stream; /* on device memory */
    int64_t *key;      /* [1] on the host, written by dispatch and route, read by the others */
    int32_t *counts;   /* these four as in struct epx_python_view */
    int32_t *offsets;
    int32_t *row_experts;
    int64_t adds_up;
    struct epx_python_matrix ids;
    struct epx_python_matrix input;
    struct epx_python_matrix weights;
    struct epx_python_matrix rows; /* combine backward: what combine was given, or none */
    struct epx_python_matrix output;
    struct epx_python_matrix out_weights;
    struct epx_python_matrix fields[EPX_PYTHON_FIELDS]; /* dispatch: beside the tokens, or none;
                                                           combine: two biases, token_weights */
    struct epx_python_matrix out_fields[EPX_PYTHON_FIELDS];
};

/* Tensors for what a route shows of its latest routing, which Python packs, too; or NULL. */
struct epx_python_look {
    int64_t route;
    const int64_t *key; /* of the routing that is wanted */
    EPX_Stream stream;
    int64_t capacity;     /* rows of the next four, at most that of the routing */
    int32_t *row_experts; /* [capacity][K], this one and the next ones as in EPX_Route_view */
    int32_t *row_tokens;
    int32_t *row_ranks;
    int32_t *row_choices;
    int32_t *rank_counts;
    int32_t *slots;
    int64_t *required_rows;
    int32_t *overflow;
};

/* An exchange of rows without a route. Every member has 8 bytes, as above. */
struct epx_python_exchange {
    int64_t comm;
    int64_t graph;     /* -1: all ranks are neighbours */
    int64_t capacity;  /* rows of the receive buffer */
    EPX_Stream stream; /* on device memory */
    struct epx_python_matrix input;
    struct epx_python_matrix counts; /* these two int64: of the rows for each neighbour */
    struct epx_python_matrix displs;
    struct epx_python_matrix output;
    struct epx_python_matrix out_counts; /* these two int64, written: of the rows that arrive */
    struct epx_python_matrix out_displs;
};

/* Python packs these members, too. Any size may be negative or wrong: all is checked. */
struct epx_python_route_attr {
    int64_t comm;
    int64_t num_experts;
    int64_t top_k;
    int64_t max_tokens;
    int64_t alignment;
    int64_t capacity; /* 0 = the worst case */
    int64_t layout;
    int64_t overflow;
    int64_t zero_unused;
    int64_t rows_per_expert;
    int64_t max_row_bytes; /* 0 = not known */
};

/* glue.c: errors, and the clock */
int epx_python_fail_list(int code, const char *format, va_list values);
int epx_python_fail(int code, const char *format, ...);
int epx_python_fail_alone(int code);
int epx_python_check(const struct epx_python_comm *comm, int code);
int epx_python_has_timed_out(void);
void epx_python_note_lost(void);
int epx_python_has_lost(void);
int64_t epx_python_now_ns(void);
void epx_python_message(char text[EPX_MAX_ERROR_STRING]);

/* glue_module.c: the module of MPI. Opens it at the first call; NULL and an error if that fails */
const struct epx_python_mpi *epx_python_mpi_open(void);
/* The module if it was opened, or if a library of MPI is in the process; else NULL. */
const struct epx_python_mpi *epx_python_mpi_there(void);
/* The module if it was opened; else NULL. */
const struct epx_python_mpi *epx_python_mpi(void);

/* glue_world.c: MPI as far as programs know of it */
int epx_python_has_mpi(void);
int epx_python_init(int *initialized_here);
int epx_python_is_initialized(void);
int epx_python_finalize(void);
int epx_python_world(int rank_size[2]);
int epx_python_node_rank(int *rank);
int epx_python_fortran_world(void);
int epx_python_gather(const void *mine, void *all, int bytes);

/* glue_comm.c: communicators */
int64_t epx_python_timeout_ms(const char *hints[]);
int epx_python_comm_create(int fortran, const int ranks[], int num_ranks, const char *hints[],
                           int *number);
int epx_python_comm_create_from(int rank, int size, EPX_Allgather_function *allgather,
                                const char *hints[], int *number);
int epx_python_comm_shrink(int number, int *newnumber);
int epx_python_comm_free(int number);
int epx_python_comm_place(int number, int *rank, int *size);
/* An array of one element a rank. */
int epx_python_comm_ranks(int number, int *parent_ranks);
int epx_python_comm_hint(int number, const char *key, char value[EPX_MAX_HINT_STRING]);
int epx_python_comm_check(int number);
int epx_python_comm_stats(int number, uint64_t counters[10]);
/* Arrays of one element a rank. */
int epx_python_comm_waits(int number, uint64_t *ns, uint64_t *operations);
int epx_python_comm_largest(int number, int64_t value, int64_t *largest);

/* glue_route.c: routes */
extern const size_t epx_python_route_attr_bytes; /* of the struct */
int epx_python_route_create(const struct epx_python_route_attr *attr, int *number);
int epx_python_route_free(int number);
int epx_python_route_shape(int number, int64_t capacity_experts_first[3]);
int epx_python_route_set_capacity(int number, int64_t capacity);

/* glue_extents.c: whether tensors fit */
int epx_python_check_extents(const struct epx_python_operation *op,
                             const struct epx_python_route *route);
/* Whether a tensor of rows at slots has fewer than the capacity; and whether one has too few. */
int epx_python_has_few_slots(const struct epx_python_operation *op);
int epx_python_check_slots(const struct epx_python_operation *op, int64_t num_rows);
EPX_Datatype epx_python_wire_type(int64_t type);
int epx_python_check_current(const struct epx_python_operation *op,
                             const struct epx_python_route *route);
const char *epx_python_type_name(int64_t type);

/* glue_operation.c: the operations */
extern const size_t epx_python_operation_bytes; /* of the struct */
int epx_python_run(const struct epx_python_operation *operation);
int epx_python_run_in_slices(const struct epx_python_operation *operation);
int epx_python_end_or_keep(struct epx_python_work *work, EPX_Stream stream);
int64_t epx_python_unfinished(void);
int epx_python_start(const struct epx_python_operation *operation, int64_t *work);

/* glue_exchange.c: exchanges without a route, and graphs */
extern const size_t epx_python_exchange_bytes; /* of the struct */
int epx_python_exchange_in_slices(const struct epx_python_exchange *exchange);
int epx_python_graph_create(int comm, int indegree, const int sources[], int outdegree,
                            const int destinations[], int *number);
int epx_python_graph_free(int number);

/* glue_wait.c: how they end */
int epx_python_end(struct epx_python_work *work, EPX_Stream stream);
int epx_python_end_in_slice(struct epx_python_work *work, EPX_Stream stream);
int64_t epx_python_number(struct epx_python_work *work);
int epx_python_wait(int64_t number, EPX_Stream stream);
void epx_python_discard(struct epx_python_work *work);
void epx_python_forget(int64_t number);
void epx_python_abandon(int64_t number);
int epx_python_drop_routing(int64_t number, int64_t key);
int64_t epx_python_await_routing(struct epx_python_route *route, struct epx_python_work *work);
int epx_python_routing_in_slice(struct epx_python_route *route);
int epx_python_is_on_its_way(const struct epx_python_route *route);
void epx_python_settle_view(struct epx_python_route *route, const struct epx_python_work *work);

/* glue_view.c: what a routing shows */
int epx_python_view_set(struct epx_python_route *route, const struct epx_python_view *to);
void epx_python_view_copy(const struct epx_python_route *route, const struct epx_python_view *to);
int epx_python_view_enqueue(struct epx_python_route *route, const struct epx_python_view *to,
                            EPX_Stream stream);
int epx_python_view_await(const struct epx_python_route *route, EPX_Stream stream,
                          uint64_t capture);

/* glue_look.c: what else a route shows */
extern const size_t epx_python_look_bytes; /* of the struct */
int epx_python_look(const struct epx_python_look *look);

/* glue_device.c: CUDA itself */
int epx_python_device_choose(int ordinal, int *device);
void epx_python_device_leave(int device);
int epx_python_device_context(void **context);
int epx_python_device_enter(void *context);
int epx_python_device_push(void *context);
void epx_python_device_pop(void);
int epx_python_device_of(const void *memory);
int epx_python_device_copy(void *to, const void *from, size_t bytes, EPX_Stream stream);
int epx_python_device_place(void **memory, const void *host, size_t bytes);
int epx_python_device_fetch(void *host, const void *memory, size_t bytes);
void epx_python_device_free(void *memory);
int epx_python_device_zero(int32_t *word, EPX_Stream stream);
int epx_python_device_capture(EPX_Stream stream, uint64_t *capture);
int epx_python_device_mark(void *context, void **event, EPX_Stream stream);
int epx_python_device_await(void *context, void *event, EPX_Stream stream);
void epx_python_device_unmark(void **event);

/* glue_arena.c: windows of a communicator, and the parts of them that tensors have */
enum { EPX_PYTHON_ALIGNMENT = 512 }; /* of parts, as torch aligns its own blocks */
struct epx_python_arena;
struct epx_python_block;
struct epx_python_arena *epx_python_arena_new(int64_t comm, int64_t *bytes);
void epx_python_arena_open(struct epx_python_arena *arena, void *window, int device);
struct epx_python_arena *epx_python_arena_first(int64_t comm);
void *epx_python_arena_window(const struct epx_python_arena *arena);
void epx_python_arena_free(struct epx_python_arena *arena);
int epx_python_is_reserved(int number, const void *data, int64_t bytes);
int epx_python_reserved(int number, int64_t counts[5]);
struct epx_python_block *epx_python_take(int64_t comm, int64_t bytes, int device);
void *epx_python_block_data(const struct epx_python_block *block);
void epx_python_give(struct epx_python_block *block);
int epx_python_give_at(const void *data);
int64_t epx_python_seal(int number, int sealed);

/* glue_reserve.c: how all ranks make and free these windows */
int epx_python_reserve(int number, int64_t bytes);
int epx_python_release(int number);

/* glue_tensor.c: parts of arenas on host memory, by DLPack */
void *epx_python_tensor(int number, int64_t bytes);
void epx_python_tensor_free(void *tensor);

/* glue_pool.c: arenas on device memory, for torch's pools */
int epx_python_pool(int number, int *pool);
void epx_python_pool_leave(int64_t number);
void epx_python_pool_free(void *memory, size_t bytes, int ordinal, void *stream);

/* glue_perf.c: the same operations again and again */
int epx_python_repeat(const struct epx_python_operation ops[], int num_ops, int times,
                      int64_t *nanoseconds);

/* glue_table.c: numbers for pointers; a number is given once */
struct epx_python_table;
extern struct epx_python_table epx_python_comms, epx_python_graphs, epx_python_routes;
int epx_python_table_add(struct epx_python_table *table, void *item);
void *epx_python_table_get(struct epx_python_table *table, int64_t number);
void epx_python_table_remove(struct epx_python_table *table, int64_t number);
int epx_python_table_is_used(const struct epx_python_table *table);
void epx_python_note_forks(void);
int epx_python_is_child(void);
int epx_python_comm(int64_t number, struct epx_python_comm **comm);
int epx_python_graph(int64_t number, struct epx_python_graph **graph);
int epx_python_route(int64_t number, struct epx_python_route **route);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx.h - expert parallelism for mixture-of-experts models as MPI-style
 * nonblocking collectives. The manual pages EPX_*(3) document every call,
 * epx(7) the words, epx_memory(7) the memory rules, epx_hints(7) the hints.
 */
#ifndef EPX_H
#define EPX_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EPX_VERSION_MAJOR 0
#define EPX_VERSION_MINOR 3
#define EPX_VERSION_PATCH 0

/* Handles. A stream is a cudaStream_t; host memory has none. */
typedef struct epx_comm *EPX_Comm;
typedef struct epx_route *EPX_Route;
typedef struct epx_request *EPX_Request;
typedef struct epx_graph *EPX_Graph;
typedef struct CUstream_st *EPX_Stream;

#define EPX_COMM_NULL ((EPX_Comm)0)
#define EPX_ROUTE_NULL ((EPX_Route)0)
#define EPX_REQUEST_NULL ((EPX_Request)0)
#define EPX_GRAPH_NULL ((EPX_Graph)0)
#define EPX_STREAM_NULL ((EPX_Stream)0)

/* Error codes */
#define EPX_SUCCESS 0
#define EPX_ERR_ARG 1              /* invalid argument, or arguments that differ across ranks */
#define EPX_ERR_COMM 2             /* invalid communicator */
#define EPX_ERR_ROUTE 3            /* invalid route, or no tokens routed yet */
#define EPX_ERR_REQUEST 4          /* invalid request */
#define EPX_ERR_BUFFER 5           /* invalid, overlapping or wrongly placed buffer */
#define EPX_ERR_COUNT 6            /* count, length or capacity out of range */
#define EPX_ERR_TYPE 7             /* datatype unknown or unsuited to the operation */
#define EPX_ERR_INFO 8             /* hint with an invalid value */
#define EPX_ERR_TRUNCATE 9         /* more rows than the receive capacity */
#define EPX_ERR_PENDING 10         /* routes, memory or operations left over */
#define EPX_ERR_IN_STATUS 11       /* an operation failed, see the statuses */
#define EPX_ERR_TIMEOUT 12         /* a rank did not answer; the communicator is finished */
#define EPX_ERR_NO_MEM 13          /* not enough memory */
#define EPX_ERR_TRANSPORT 14       /* the transport asked for is not usable here */
#define EPX_ERR_UNSUPPORTED 15     /* this build or machine cannot do it */
#define EPX_ERR_NOT_INITIALIZED 16 /* MPI is not initialized, or already finalized */
#define EPX_ERR_MPI 17             /* MPI reported an error */
#define EPX_ERR_CUDA 18            /* CUDA reported an error */
#define EPX_ERR_INTERN 19          /* a defect of the library */
#define EPX_ERR_LASTCODE 20

#define EPX_MAX_LIBRARY_VERSION_STRING 256
#define EPX_MAX_ERROR_STRING 512
#define EPX_MAX_HINT_STRING 64
#define EPX_MAX_FIELDS 4 /* arrays of rows in one EPX_Dispatch_fields */
#define EPX_MAX_BIASES 2 /* arrays of rows that one EPX_Combine_from adds to its sums */

/* indegree of EPX_Graph_create_adjacent: the lists are those of the MPI communicator's topology */
#define EPX_FROM_TOPOLOGY (-1)

/* Flags of persistent operations */
#define EPX_FIXED_COUNTS 1 /* counts and displacements are read once, when the request is made */

/* Element types */
typedef int EPX_Datatype;
#define EPX_DATATYPE_NULL 0
#define EPX_BYTE 1
#define EPX_FLOAT8_E4M3 2
#define EPX_FLOAT8_E5M2 3
#define EPX_FLOAT16 4
#define EPX_BFLOAT16 5
#define EPX_FLOAT32 6
#define EPX_FLOAT64 7

/* Order of the rows in the receive buffer */
typedef int EPX_Layout;
#define EPX_EXPERT_MAJOR 1 /* one row a (token, choice), by (expert, source rank, token, choice) */
#define EPX_RANK_MAJOR 2   /* one row a (token, rank), by (source rank, token) */
#define EPX_EXPERT_SLAB 3  /* as EPX_EXPERT_MAJOR, each expert in rows_per_expert rows of its own */

/* What happens to rows past the receive capacity, or past the slab of their expert */
typedef int EPX_Overflow;
#define EPX_OVERFLOW_ERROR 1 /* the routing fails on every rank */
#define EPX_OVERFLOW_DROP 2  /* the rows are dropped */

typedef struct EPX_Route_attr {
    size_t size;           /* sizeof(EPX_Route_attr) */
    int num_experts;       /* experts of all ranks; the same on all ranks */
    int top_k;             /* expert ids a token, 1..64; the same on all ranks */
    int max_tokens;        /* most tokens any rank routes in one call; the same on all ranks */
    int alignment;         /* rows to whose multiple expert slabs are aligned; a power of two */
    int64_t recv_capacity; /* rows of this rank's receive buffer; 0 = the worst case */
    int64_t max_row_bytes; /* longest row of any call, the same on all ranks; 0 = any */
    int index_bits;        /* width of the expert ids: 32 or 64 */
    EPX_Layout layout;
    EPX_Overflow overflow;
    int64_t rows_per_expert; /* EPX_EXPERT_SLAB: rows of each slab, the same on all ranks; else 0 */
    int zero_unused;         /* 1: dispatch and combine backward zero unused rows too */
    int64_t distinct_experts; /* 1: no token names an expert twice; the worst case is less then */
} EPX_Route_attr;

#define EPX_ROUTE_ATTR_INIT                                                                        \
    {                                                                                              \
        sizeof(EPX_Route_attr), 0, 0, 0, 1, 0, 0, 64, EPX_EXPERT_MAJOR, EPX_OVERFLOW_ERROR, 0, 0,  \
            0                                                                                      \
    }

typedef struct EPX_Route_view {
    size_t size;           /* sizeof(EPX_Route_view) */
    int num_local_experts; /* L */
    int first_local_expert;
    int64_t capacity;              /* rows the receive buffer must have */
    const int32_t *expert_counts;  /* [L] rows (rank-major: pairs) of each local expert */
    const int64_t *expert_offsets; /* [L+1] first row of each slab; NULL in rank-major */
    const int32_t *rank_counts;    /* [R] unique rows from each source rank */
    const int64_t *num_rows;       /* [1] rows used, padding included */
    const int64_t *required_rows;  /* [1] rows that would have been used without a capacity */
    const int32_t *slots;          /* [max_tokens][K] row at the expert's rank, or -1 */
    const int32_t *row_expert_ids; /* [capacity][K] local expert or -1; NULL in expert-major */
    const int32_t *row_tokens;     /* [capacity] token index on the home rank; -1 = padding */
    const int32_t *row_ranks;      /* [capacity] home rank; -1 = padding */
    const int32_t *expert_ends;    /* [L] first row after each slab; NULL in rank-major */
    const int32_t *group_sizes;    /* [L] rows of each slab, padding included; NULL in rank-major */
    const int32_t *overflow;       /* [1] 1 if a rank lacked room for the routing, else 0 */
    const int32_t *row_choices;    /* [capacity] choice; -1 = padding; NULL in rank-major */
} EPX_Route_view;

#define EPX_ROUTE_VIEW_INIT                                                                        \
    {                                                                                              \
        sizeof(EPX_Route_view), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,     \
            NULL, NULL, NULL, NULL                                                                 \
    }

/* As MPI_Allgather of bytes: 0, or another number if it failed */
typedef int EPX_Allgather_function(const void *own, void *all, size_t bytes, void *arg);

/* Ranks that MPI need not have started: EPX_Comm_create_from */
typedef struct EPX_Bootstrap {
    size_t size;                       /* sizeof(EPX_Bootstrap) */
    int rank;                          /* of this process, from 0 */
    int num_ranks;                     /* the same on all ranks */
    EPX_Allgather_function *allgather; /* makes the first contact */
    void *arg;                         /* what allgather is handed */
} EPX_Bootstrap;

#define EPX_BOOTSTRAP_INIT                                                                         \
    {                                                                                              \
        sizeof(EPX_Bootstrap), 0, 1, NULL, NULL                                                    \
    }

typedef struct EPX_Stats {
    size_t size;           /* sizeof(EPX_Stats) */
    uint64_t calls;        /* collective operations started */
    uint64_t rows_self;    /* rows sent to this rank itself */
    uint64_t rows_node;    /* rows sent to other ranks of the node */
    uint64_t rows_network; /* rows sent to other nodes */
    uint64_t bytes_self;
    uint64_t bytes_node;
    uint64_t bytes_network;
    uint64_t dropped_rows; /* this rank's pairs (rank-major: unique rows) that found no room */
    uint64_t timeouts;     /* operations that ended with EPX_ERR_TIMEOUT */
    uint64_t host_syncs;   /* times a nonblocking call blocked the host on the GPU: 0 */
    uint64_t messages;     /* words and blocks of rows that operations sent to other ranks */
} EPX_Stats;

#define EPX_STATS_INIT                                                                             \
    {                                                                                              \
        sizeof(EPX_Stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                         \
    }

typedef struct EPX_Waits {
    size_t size;          /* sizeof(EPX_Waits) */
    int num_ranks;        /* of the arrays, or 0 if they have one element a rank; then the ranks */
    uint64_t *ns;         /* [num_ranks] nanoseconds waited for each rank; or NULL */
    uint64_t *operations; /* [num_ranks] operations in which it came last; or NULL */
} EPX_Waits;

#define EPX_WAITS_INIT                                                                             \
    {                                                                                              \
        sizeof(EPX_Waits), 0, NULL, NULL                                                           \
    }

/* Library: local */
int EPX_Get_version(int *major, int *minor, int *patch);
int EPX_Get_library_version(char *version, int *resultlen);
int EPX_Error_string(int errorcode, char *string, int *resultlen);
int EPX_Get_error_message(char *string, int *resultlen);

/* Communicator */
int EPX_Comm_create(MPI_Comm comm, MPI_Info info, EPX_Comm *newcomm);
int EPX_Comm_create_from(const EPX_Bootstrap *bootstrap, const char *const hints[],
                         EPX_Comm *newcomm);
int EPX_Comm_free(EPX_Comm *comm);
int EPX_Comm_rank(EPX_Comm comm, int *rank);
int EPX_Comm_size(EPX_Comm comm, int *size);
int EPX_Comm_get_info(EPX_Comm comm, MPI_Info *info_used);
int EPX_Comm_get_hint(EPX_Comm comm, const char *key, char *value, int *resultlen);
int EPX_Comm_set_errhandler(EPX_Comm comm, MPI_Errhandler errhandler);
int EPX_Comm_get_async_error(EPX_Comm comm, int *errorcode);
int EPX_Comm_get_error_message(EPX_Comm comm, char *string, int *resultlen);
int EPX_Comm_get_stats(EPX_Comm comm, EPX_Stats *stats);
int EPX_Comm_get_waits(EPX_Comm comm, EPX_Waits *waits);
int EPX_Comm_shrink(EPX_Comm comm, EPX_Comm *newcomm);
int EPX_Comm_get_ranks(EPX_Comm comm, int parent_ranks[]);

/* Memory that the other ranks can store into */
int EPX_Alloc_mem(MPI_Aint bytes, EPX_Comm comm, void *baseptr);
int EPX_Free_mem(void *base, EPX_Comm comm);

/* Route */
int EPX_Route_create(const EPX_Route_attr *attr, EPX_Comm comm, EPX_Route *route);
int EPX_Route_free(EPX_Route *route);
int EPX_Route_set_capacity(EPX_Route route, int64_t recv_capacity);
int EPX_Route_set_counts(EPX_Route route, int32_t *counts);
int EPX_Route_tokens(const void *expert_ids, int num_tokens, EPX_Route route, EPX_Stream stream,
                     EPX_Request *request);
int EPX_Route_get_view(EPX_Route route, EPX_Route_view *view);

/* Collectives */
int EPX_Dispatch(const void *sendbuf, const float *weights, void *recvbuf, float *recv_weights,
                 int count, EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                 EPX_Request *request);
int EPX_Route_dispatch(const void *expert_ids, int num_tokens, const void *sendbuf,
                       const float *weights, void *recvbuf, float *recv_weights, int count,
                       EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                       EPX_Request *request);
int EPX_Dispatch_fields(int nfields, const void *const sendbufs[], void *const recvbufs[],
                        const int counts[], const EPX_Datatype datatypes[], const float *weights,
                        float *recv_weights, EPX_Route route, EPX_Stream stream,
                        EPX_Request *request);
int EPX_Route_dispatch_fields(const void *expert_ids, int num_tokens, int nfields,
                              const void *const sendbufs[], void *const recvbufs[],
                              const int counts[], const EPX_Datatype datatypes[],
                              const float *weights, float *recv_weights, EPX_Route route,
                              EPX_Stream stream, EPX_Request *request);
int EPX_Combine(const void *sendbuf, const float *weights, void *recvbuf, int count,
                EPX_Datatype datatype, EPX_Route route, EPX_Stream stream, EPX_Request *request);
int EPX_Combine_from(const void *sendbuf, const float *weights, int num_biases,
                     const void *const biases[], const float *token_weights, void *recvbuf,
                     int count, EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                     EPX_Request *request);
int EPX_Dispatch_backward(const void *grad_recv, const float *grad_recv_weights, void *grad_send,
                          float *grad_weights, int count, EPX_Datatype datatype, EPX_Route route,
                          EPX_Stream stream, EPX_Request *request);
int EPX_Combine_backward(const void *grad, const void *sendbuf, const float *weights,
                         void *grad_sendbuf, float *grad_slot_weights, int count,
                         EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                         EPX_Request *request);
int EPX_Alltoallv(const void *sendbuf, const int64_t sendcounts[], const int64_t sdispls[],
                  void *recvbuf, int64_t recvcounts[], int64_t rdispls[], int64_t recv_capacity,
                  int count, EPX_Datatype datatype, EPX_Comm comm, EPX_Stream stream,
                  EPX_Request *request);

/* Exchanges with neighbours: who may send to whom is fixed, how much is free in every operation */
int EPX_Graph_create_adjacent(EPX_Comm comm, int indegree, const int sources[], int outdegree,
                              const int destinations[], EPX_Graph *graph);
int EPX_Graph_free(EPX_Graph *graph);
int EPX_Neighbor_alltoallv(const void *sendbuf, const int64_t sendcounts[], const int64_t sdispls[],
                           void *recvbuf, int64_t recvcounts[], int64_t rdispls[],
                           int64_t recv_capacity, int count, EPX_Datatype datatype, EPX_Graph graph,
                           EPX_Stream stream, EPX_Request *request);

/* Persistent operations: a request that is started again and again, see EPX_Start(3) */
int EPX_Alltoallv_init(const void *sendbuf, const int64_t sendcounts[], const int64_t sdispls[],
                       void *recvbuf, int64_t recvcounts[], int64_t rdispls[],
                       int64_t recv_capacity, int count, EPX_Datatype datatype, EPX_Comm comm,
                       EPX_Stream stream, int flags, EPX_Request *request);
int EPX_Neighbor_alltoallv_init(const void *sendbuf, const int64_t sendcounts[],
                                const int64_t sdispls[], void *recvbuf, int64_t recvcounts[],
                                int64_t rdispls[], int64_t recv_capacity, int count,
                                EPX_Datatype datatype, EPX_Graph graph, EPX_Stream stream,
                                int flags, EPX_Request *request);
int EPX_Start(EPX_Request *request);
int EPX_Startall(int n, EPX_Request requests[]);
int EPX_Request_free(EPX_Request *request);

/* Completion */
int EPX_Wait(EPX_Request *request, MPI_Status *status);
int EPX_Test(EPX_Request *request, int *flag, MPI_Status *status);
int EPX_Waitall(int n, EPX_Request requests[], MPI_Status *statuses);
int EPX_Wait_enqueue(EPX_Request *request, EPX_Stream stream);

/*
 * PEPX_X is EPX_X for tools: a tool defines EPX_Dispatch and calls PEPX_Dispatch, see PROFILING in
 * epx(7).
 */
int PEPX_Get_version(int *major, int *minor, int *patch);
int PEPX_Get_library_version(char *version, int *resultlen);
int PEPX_Error_string(int errorcode, char *string, int *resultlen);
int PEPX_Get_error_message(char *string, int *resultlen);
int PEPX_Comm_create(MPI_Comm comm, MPI_Info info, EPX_Comm *newcomm);
int PEPX_Comm_create_from(const EPX_Bootstrap *bootstrap, const char *const hints[],
                          EPX_Comm *newcomm);
int PEPX_Comm_free(EPX_Comm *comm);
int PEPX_Comm_rank(EPX_Comm comm, int *rank);
int PEPX_Comm_size(EPX_Comm comm, int *size);
int PEPX_Comm_get_info(EPX_Comm comm, MPI_Info *info_used);
int PEPX_Comm_get_hint(EPX_Comm comm, const char *key, char *value, int *resultlen);
int PEPX_Comm_set_errhandler(EPX_Comm comm, MPI_Errhandler errhandler);
int PEPX_Comm_get_async_error(EPX_Comm comm, int *errorcode);
int PEPX_Comm_get_error_message(EPX_Comm comm, char *string, int *resultlen);
int PEPX_Comm_get_stats(EPX_Comm comm, EPX_Stats *stats);
int PEPX_Comm_get_waits(EPX_Comm comm, EPX_Waits *waits);
int PEPX_Comm_shrink(EPX_Comm comm, EPX_Comm *newcomm);
int PEPX_Comm_get_ranks(EPX_Comm comm, int parent_ranks[]);
int PEPX_Alloc_mem(MPI_Aint bytes, EPX_Comm comm, void *baseptr);
int PEPX_Free_mem(void *base, EPX_Comm comm);
int PEPX_Route_create(const EPX_Route_attr *attr, EPX_Comm comm, EPX_Route *route);
int PEPX_Route_free(EPX_Route *route);
int PEPX_Route_set_capacity(EPX_Route route, int64_t recv_capacity);
int PEPX_Route_set_counts(EPX_Route route, int32_t *counts);
int PEPX_Route_tokens(const void *expert_ids, int num_tokens, EPX_Route route, EPX_Stream stream,
                      EPX_Request *request);
int PEPX_Route_get_view(EPX_Route route, EPX_Route_view *view);
int PEPX_Dispatch(const void *sendbuf, const float *weights, void *recvbuf, float *recv_weights,
                  int count, EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                  EPX_Request *request);
int PEPX_Route_dispatch(const void *expert_ids, int num_tokens, const void *sendbuf,
                        const float *weights, void *recvbuf, float *recv_weights, int count,
                        EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                        EPX_Request *request);
int PEPX_Dispatch_fields(int nfields, const void *const sendbufs[], void *const recvbufs[],
                         const int counts[], const EPX_Datatype datatypes[], const float *weights,
                         float *recv_weights, EPX_Route route, EPX_Stream stream,
                         EPX_Request *request);
int PEPX_Route_dispatch_fields(const void *expert_ids, int num_tokens, int nfields,
                               const void *const sendbufs[], void *const recvbufs[],
                               const int counts[], const EPX_Datatype datatypes[],
                               const float *weights, float *recv_weights, EPX_Route route,
                               EPX_Stream stream, EPX_Request *request);
int PEPX_Combine(const void *sendbuf, const float *weights, void *recvbuf, int count,
                 EPX_Datatype datatype, EPX_Route route, EPX_Stream stream, EPX_Request *request);
int PEPX_Combine_from(const void *sendbuf, const float *weights, int num_biases,
                      const void *const biases[], const float *token_weights, void *recvbuf,
                      int count, EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                      EPX_Request *request);
int PEPX_Dispatch_backward(const void *grad_recv, const float *grad_recv_weights, void *grad_send,
                           float *grad_weights, int count, EPX_Datatype datatype, EPX_Route route,
                           EPX_Stream stream, EPX_Request *request);
int PEPX_Combine_backward(const void *grad, const void *sendbuf, const float *weights,
                          void *grad_sendbuf, float *grad_slot_weights, int count,
                          EPX_Datatype datatype, EPX_Route route, EPX_Stream stream,
                          EPX_Request *request);
int PEPX_Alltoallv(const void *sendbuf, const int64_t sendcounts[], const int64_t sdispls[],
                   void *recvbuf, int64_t recvcounts[], int64_t rdispls[], int64_t recv_capacity,
                   int count, EPX_Datatype datatype, EPX_Comm comm, EPX_Stream stream,
                   EPX_Request *request);
int PEPX_Graph_create_adjacent(EPX_Comm comm, int indegree, const int sources[], int outdegree,
                               const int destinations[], EPX_Graph *graph);
int PEPX_Graph_free(EPX_Graph *graph);
int PEPX_Neighbor_alltoallv(const void *sendbuf, const int64_t sendcounts[],
                            const int64_t sdispls[], void *recvbuf, int64_t recvcounts[],
                            int64_t rdispls[], int64_t recv_capacity, int count,
                            EPX_Datatype datatype, EPX_Graph graph, EPX_Stream stream,
                            EPX_Request *request);
int PEPX_Alltoallv_init(const void *sendbuf, const int64_t sendcounts[], const int64_t sdispls[],
                        void *recvbuf, int64_t recvcounts[], int64_t rdispls[],
                        int64_t recv_capacity, int count, EPX_Datatype datatype, EPX_Comm comm,
                        EPX_Stream stream, int flags, EPX_Request *request);
int PEPX_Neighbor_alltoallv_init(const void *sendbuf, const int64_t sendcounts[],
                                 const int64_t sdispls[], void *recvbuf, int64_t recvcounts[],
                                 int64_t rdispls[], int64_t recv_capacity, int count,
                                 EPX_Datatype datatype, EPX_Graph graph, EPX_Stream stream,
                                 int flags, EPX_Request *request);
int PEPX_Start(EPX_Request *request);
int PEPX_Startall(int n, EPX_Request requests[]);
int PEPX_Request_free(EPX_Request *request);
int PEPX_Wait(EPX_Request *request, MPI_Status *status);
int PEPX_Test(EPX_Request *request, int *flag, MPI_Status *status);
int PEPX_Waitall(int n, EPX_Request requests[], MPI_Status *statuses);
int PEPX_Wait_enqueue(EPX_Request *request, EPX_Stream stream);

#ifdef __cplusplus
}
#endif

#endif

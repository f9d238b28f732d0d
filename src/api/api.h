/* SPDX-License-Identifier: BSD-3-Clause */
/* api.h - what every public function does first and last. */
#ifndef EPX_API_API_H
#define EPX_API_API_H

#include "control/mpi_module.h"
#include "core/request.h"
#include "core/route.h"

/* First: names the function in messages; EPX_ERR_NOT_INITIALIZED where MPI does not work, unless
 * there are communicators that MPI did not make, or the process was forked off by one that has MPI,
 * whose handles it does not have. */
#define EPX_API_ENTER() EPX_TRY(epx_api_enter(__func__))
int epx_api_enter(const char *function);
/* First, in a function that calls MPI in any case. */
int epx_api_enter_mpi(const char *function);
/* Within a function, after enter: MPI where it can be called, else NULL. A process that has
 * communicators which MPI did not make may have no MPI: the module is not opened for it. */
const struct epx_mpi *epx_api_mpi(void);

/* Next: whether the user may use a handle; if not, as epx_api_return without a communicator. */
int epx_api_comm(const struct epx_comm *comm);
int epx_api_route(const struct epx_route *route);
int epx_api_graph(const struct epx_graph *graph);
/* With the lock held: whether the user may use a request, where a null one is complete; whether a
 * list of requests is one, and names none twice. *comm is the communicator for epx_api_return,
 * which is called without the lock; NULL = there is none. */
int epx_check_request_at(const EPX_Request *request, struct epx_comm **comm);
int epx_check_request_list(int n, const EPX_Request *requests, struct epx_comm **comm);

/*
 * Last: hands an error, with this thread's message, to the communicator's error handler; comm NULL:
 * to that of MPI_COMM_WORLD. An error of a communicator that the user has freed, or that MPI did
 * not make, is returned only.
 */
int epx_api_return(struct epx_comm *comm, int error);
/* Last, before there is a communicator: to the handler of comm, which may be MPI_COMM_NULL; comm
 * NULL: to that of MPI_COMM_WORLD. */
int epx_api_return_to(const MPI_Comm *comm, int error);
/* Fails without a communicator. */
#define EPX_API_FAIL_IF(condition, ...)                                                            \
    do {                                                                                           \
        if (condition)                                                                             \
            return epx_api_return(NULL, epx_fail(__VA_ARGS__));                                    \
    } while (0)

/* Registers the error codes with MPI, and the hook that frees leftovers at MPI_Finalize. */
int epx_api_setup(void);
/* Has messages name this rank, where MPI gave the process none. */
void epx_api_name_rank(int rank);
/* Free what a communicator holds: a segment is freed locally; to free the communicator may mean to
 * wait for peers, unless it is finished. */
void epx_api_free_segment(struct epx_comm *comm, struct epx_segment *segment);
void epx_api_free_comm(struct epx_comm *comm);

struct epx_origin;
/* Collective: makes what epx_comm_allocate gave a communicator that the user has. own_rc is this
 * rank's result so far; created is NULL without memory to tell the others of it. */
int epx_api_make_comm(struct epx_comm *created, const struct epx_origin *origin, int own_rc,
                      struct epx_comm **newcomm);

/* A buffer that a call was given. */
struct epx_buffer {
    const char *name;
    const void *address;
    int64_t rows;
    int64_t row_bytes;
    int alignment; /* bytes of an element, a power of two */
    int written;
    int required; /* may not be NULL unless it is empty */
};
enum { EPX_MOST_BUFFERS = 3 + 2 * EPX_MAX_FIELDS }; /* that are checked at once */

/* EPX_ERR_BUFFER for MPI_IN_PLACE, for NULL, for an address that is not aligned to its element, for
 * memory of another space than the communicator's or less of it than the rows need, as far as that
 * is known, and where a written buffer shares a byte. */
int epx_check_buffers(const struct epx_comm *comm, const struct epx_buffer *buffers, int num);

/* What is told of a row, and the names of these arguments in messages. */
struct epx_row_type {
    const char *count_name, *datatype_name;
    int count;
    EPX_Datatype datatype;
};

/* Checks datatype and count for the verb; *bytes is the length of such a row. */
int epx_check_row_type(enum epx_verb verb, const struct epx_row_type *type, int64_t *bytes);
/* Sums the lengths of the fields of a call; EPX_ERR_COUNT if that is more than max_row_bytes, where
 * 0 stands for any length. */
int epx_check_row_bytes(int64_t max_row_bytes, struct epx_call *call);
/* Both, for a call of one field, whose addresses are set. */
int epx_check_rows(int count, EPX_Datatype datatype, int64_t max_row_bytes, struct epx_call *call);
/* What every operation on a routing checks, and takes from the routing. */
int epx_check_routed(const struct epx_route *route, const EPX_Request *request,
                     struct epx_call *call);
/* The rows of a call of one field, and weights, as buffers to check. Those at the slots have the
 * routing's num_rows rows; while that number is not known they count as a byte. */
struct epx_buffer epx_rows_buffer(const char *name, const void *address, int64_t rows,
                                  const struct epx_call *call, int written);
struct epx_buffer epx_weights_buffer(const char *name, const float *address, int64_t rows,
                                     int64_t per_row, int written);
struct epx_buffer epx_slots_buffer(const char *name, const void *address,
                                   const struct epx_call *call, int written);
struct epx_buffer epx_slot_weights_buffer(const char *name, const float *address,
                                          const struct epx_call *call, int64_t per_row,
                                          int written);
/* Gives a request that has its call what its operations have on this communicator. */
void epx_prepare(struct epx_request *request);
/* Queues a call that was checked. */
int epx_submit(struct epx_comm *comm, struct epx_route *route, const struct epx_call *call,
               EPX_Request *request);

/* An exchange without a route has four checks: all but the buffers; the buffers, where sendbuf has
 * rows up to end_row; the buffers with the counts that are in force now; and of a persistent one,
 * what may have changed since it was made. */
int epx_check_exchange(int count, EPX_Datatype datatype, const EPX_Request *request,
                       struct epx_call *call);
int epx_check_exchange_buffers(const struct epx_comm *comm, const struct epx_call *call,
                               int64_t end_row);
int epx_check_exchange_rows(const struct epx_comm *comm, const struct epx_call *call);
/* Whether what a persistent request was made with is checked at each start, and that check. */
int epx_checks_start(const struct epx_request *persistent);
int epx_check_start(const struct epx_request *persistent);

/* What every routing checks and keeps: its tokens and request, its ids as a buffer to check, and
 * once it is queued, what operations on the route refer to. */
int epx_check_tokens(const struct epx_route *route, int num_tokens, const EPX_Request *request);
struct epx_buffer epx_ids_buffer(const struct epx_route *route, const void *expert_ids,
                                 int num_tokens);
void epx_note_routing(struct epx_route *route, const struct epx_call *call);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* api_request.c - EPX_Wait, EPX_Test, EPX_Waitall, EPX_Wait_enqueue. */
#include "api/api.h"
#include "api/profile.h"
#include "base/pause.h"
#include "coll/attach.h"
#include "core/progress.h"
#include "transport/module.h"

EPX_PROFILED(Wait)
EPX_PROFILED(Test)
EPX_PROFILED(Waitall)
EPX_PROFILED(Wait_enqueue)

static void fill_status(MPI_Status *status, int64_t rows, int error)
{
    const struct epx_mpi *mpi;

    if (status == MPI_STATUS_IGNORE)
        return;
    status->MPI_SOURCE = MPI_ANY_SOURCE;
    status->MPI_TAG = MPI_ANY_TAG;
    status->MPI_ERROR = error;
    mpi = epx_api_mpi();
    if (mpi)
        mpi->set_elements(status, rows);
}

static int make_pass(struct epx_request *request)
{
    epx_request_queue_rest(request);
    return epx_progress();
}

/* With the lock held, which others may take between two passes. A request that is complete when its
 * call returns, as short exchanges are, takes none. */
static void wait_for(struct epx_request *request)
{
    int idle = 0;

    while (!request->complete) {
        idle = make_pass(request) ? 0 : idle + 1;
        if (request->complete)
            return;
        epx_unlock();
        epx_pause(idle);
        epx_lock();
    }
}

/* The operation that completing the user's request is about: of a persistent one what it has
 * started. A null request, which is complete, stands for an inactive one. */
static EPX_Request *operation_of(EPX_Request *request)
{
    return *request && (*request)->persistent ? &(*request)->started : request;
}

/* Whether the host can complete the request. */
static int check_completable(EPX_Request *request, struct epx_comm **comm)
{
    const struct epx_request *operation;

    EPX_TRY(epx_check_request_at(request, comm));
    operation = *operation_of(request);
    EPX_FAIL_IF(operation && operation->captured, EPX_ERR_REQUEST,
                "the request was made in a capture, where only EPX_Wait_enqueue completes it");
    return EPX_SUCCESS;
}

/* Who is told of an error, once the lock is released. */
struct told {
    struct epx_comm *comm; /* whose error handler is called; NULL = that of MPI_COMM_SELF */
    struct epx_comm *held; /* until then, as its last request is gone; or NULL */
};

/* Takes the outcome of an operation that is complete, or none. */
static int take(EPX_Request *handle, MPI_Status *status, struct told *told)
{
    struct epx_request *request = *handle;
    int error = request ? request->error : EPX_SUCCESS;

    fill_status(status, request && error == EPX_SUCCESS ? request->received_rows : 0, error);
    if (!request)
        return EPX_SUCCESS;
    if (error != EPX_SUCCESS) {
        epx_fail_quietly(error, request->message);
        epx_comm_retain(told->held = request->comm);
    }
    *handle = EPX_REQUEST_NULL;
    epx_request_done(request);
    return error;
}

/* With the lock held: waits for what a request stands for, and completes it. */
static int complete(EPX_Request *request, MPI_Status *status, struct told *told)
{
    EPX_Request *operation;

    EPX_TRY(check_completable(request, &told->comm));
    operation = operation_of(request);
    if (*operation != EPX_REQUEST_NULL)
        wait_for(*operation);
    return take(operation, status, told);
}

static int tell(const struct told *told, int error)
{
    epx_api_return(told->comm, error);
    epx_comm_release(told->held);
    return error;
}

static int wait_and_return(EPX_Request *request, MPI_Status *status)
{
    struct told told = {NULL, NULL};
    int rc;

    epx_lock();
    rc = complete(request, status, &told);
    epx_unlock();
    return rc == EPX_SUCCESS ? rc : tell(&told, rc);
}

/*
 * EPX_Wait - wait until an operation is complete.
 *
 * Local, blocking; progresses all communicators of the process. Bounded by epx_timeout_ms.
 * In/out: request, freed and set to EPX_REQUEST_NULL; a persistent one becomes inactive instead. A
 * null request and an inactive one complete at once with an empty status. Output: status or
 * MPI_STATUS_IGNORE: MPI_ERROR, and as elements of MPI_BYTE the rows this rank received.
 * Errors: EPX_ERR_REQUEST; the operation's error, once the error handler was called.
 */
int EPX_Wait(EPX_Request *request, MPI_Status *status)
{
    EPX_API_ENTER();
    return wait_and_return(request, status);
}

/* What a look at an operation says to a thread that may look again. */
enum look { NOTHING, IN_VAIN, MOVED };

/* With the lock held: makes a pass for an operation that is not complete. */
static enum look look_at(struct epx_request *operation)
{
    enum look look = MOVED;

    if (!operation)
        return NOTHING;
    if (operation->complete)
        return MOVED;
    if (!make_pass(operation) && !operation->complete)
        look = IN_VAIN;
    epx_waits_leave();
    return look;
}

static int test(EPX_Request *request, int *flag, MPI_Status *status, struct told *told,
                enum look *look)
{
    struct epx_request *operation;

    EPX_TRY(check_completable(request, &told->comm));
    operation = *operation_of(request);
    *look = look_at(operation);
    *flag = !operation || operation->complete;
    return *flag ? take(operation_of(request), status, told) : EPX_SUCCESS;
}

/*
 * EPX_Test - ask whether an operation is complete.
 *
 * Local, does not block; progresses all communicators of the process.
 * In/out: request, as in EPX_Wait if complete. Output: flag, 1 if complete;
 * status as in EPX_Wait, set if complete.
 * Errors: EPX_ERR_REQUEST; EPX_ERR_ARG if flag is NULL; the operation's error.
 */
int EPX_Test(EPX_Request *request, int *flag, MPI_Status *status)
{
    struct told told = {NULL, NULL};
    enum look look = NOTHING;
    int rc;

    EPX_API_ENTER();
    EPX_API_FAIL_IF(!flag, EPX_ERR_ARG, "flag is NULL");
    epx_lock();
    rc = test(request, flag, status, &told, &look);
    epx_unlock();
    if (look != NOTHING)
        epx_pause_between_calls(look == MOVED);
    return rc == EPX_SUCCESS ? rc : tell(&told, rc);
}

/* With the lock held: checks all requests of a list. What any of their operations has left for when
 * it is waited for is queued, so that none waits for another to be waited for. */
static int begin_all(int n, EPX_Request *requests, struct epx_comm **comm)
{
    EPX_TRY(epx_check_request_list(n, requests, comm));
    for (int i = 0; i < n; i++)
        EPX_TRY(check_completable(&requests[i], comm));
    for (int i = 0; i < n; i++)
        epx_request_queue_rest(*operation_of(&requests[i]));
    return EPX_SUCCESS;
}

/*
 * EPX_Waitall - wait until several operations are complete.
 *
 * Local, blocking. Input: n. In/out: requests, [n], each as in EPX_Wait. Output: statuses, [n] or
 * MPI_STATUSES_IGNORE.
 * Errors: EPX_ERR_COUNT if n < 0; EPX_ERR_ARG if requests is NULL; EPX_ERR_REQUEST, for the same
 * request twice too, nothing is waited for; EPX_ERR_IN_STATUS if an operation failed: its code is
 * in the status's MPI_ERROR, and the error handler was called with it, once for each operation that
 * failed.
 */
int EPX_Waitall(int n, EPX_Request requests[], MPI_Status *statuses)
{
    struct epx_comm *comm;
    int rc, failed = 0;

    EPX_API_ENTER();
    epx_lock();
    rc = begin_all(n, requests, &comm);
    epx_unlock();
    EPX_TRY(epx_api_return(comm, rc));
    for (int i = 0; i < n; i++) {
        MPI_Status *status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];

        failed |= wait_and_return(&requests[i], status) != EPX_SUCCESS;
    }
    return failed ? EPX_ERR_IN_STATUS : EPX_SUCCESS;
}

/* Whether it is an operation that a stream can wait for. */
static int is_on_device(const struct epx_request *operation)
{
    return operation && operation->launch && !operation->complete;
}

static int wait_enqueue(EPX_Request *handle, EPX_Stream stream)
{
    struct epx_request *request = *handle;
    const struct epx_device_ops *ops = epx_transport_device_ops(request->comm);

    EPX_TRY(ops->wait_enqueue(request, stream));
    *handle = EPX_REQUEST_NULL;
    epx_handle_remove(&request->handle);
    request->starter = NULL;
    if (request->captured)
        epx_request_abandon(request);
    else
        request->detached = 1;
    return EPX_SUCCESS;
}

/*
 * EPX_Wait_enqueue - let a stream wait for an operation.
 *
 * Local; does not block on device memory: later work on the stream comes after the operation,
 * whose error, if any, EPX_Comm_get_async_error tells. On host memory there is no stream: it is
 * EPX_Wait without a status. In a capture it is the only way to complete a request.
 * In/out: request, freed and set to EPX_REQUEST_NULL; a persistent one becomes inactive instead.
 * Input: stream.
 * Errors: as EPX_Wait; EPX_ERR_CUDA.
 */
int EPX_Wait_enqueue(EPX_Request *request, EPX_Stream stream)
{
    struct epx_comm *comm;
    int rc, waits;

    EPX_API_ENTER();
    epx_lock();
    rc = epx_check_request_at(request, &comm);
    waits = rc == EPX_SUCCESS && !is_on_device(*operation_of(request));
    if (rc == EPX_SUCCESS && !waits)
        rc = wait_enqueue(operation_of(request), stream);
    epx_unlock();
    return waits ? EPX_Wait(request, MPI_STATUS_IGNORE) : epx_api_return(comm, rc);
}

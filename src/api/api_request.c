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

static int is_complete(struct epx_request *request)
{
    int moved, complete;

    epx_lock();
    epx_request_queue_rest(request);
    moved = epx_progress();
    complete = request->complete;
    epx_waits_leave();
    epx_unlock();
    epx_pause_between_calls(moved || complete);
    return complete;
}

static void wait_for(struct epx_request *request)
{
    int idle = 0, moved, complete;

    do {
        epx_lock();
        epx_request_queue_rest(request);
        moved = epx_progress();
        complete = request->complete;
        epx_unlock();
        idle = moved ? 0 : idle + 1;
        if (!complete)
            epx_pause(idle);
    } while (!complete);
}

/* The operation that completing the user's request is about: of a persistent one what it has
 * started. A null request, which is complete, stands for an inactive one. */
static EPX_Request *operation_of(EPX_Request *request)
{
    return *request && (*request)->persistent ? &(*request)->started : request;
}

/* So that none of several operations waits for another to be waited for. */
static void queue_rests(int n, EPX_Request *requests)
{
    epx_lock();
    for (int i = 0; i < n; i++)
        epx_request_queue_rest(*operation_of(&requests[i]));
    epx_unlock();
}

/* Takes a complete request's outcome, tells the error handler, frees it. */
static int take(EPX_Request *handle, MPI_Status *status)
{
    struct epx_request *request = *handle;
    int error = request->error;

    *handle = EPX_REQUEST_NULL;
    fill_status(status, error == EPX_SUCCESS ? request->received_rows : 0, error);
    if (error != EPX_SUCCESS) {
        epx_fail_quietly(error, request->message);
        epx_api_return(request->comm, error);
    }
    epx_request_free(request);
    return error;
}

/* Whether the host can complete the request. */
static int check_completable(EPX_Request *request)
{
    const struct epx_request *operation;

    EPX_TRY(epx_api_request_at(request));
    operation = *operation_of(request);
    if (!operation || !operation->captured)
        return EPX_SUCCESS;
    return epx_api_return(operation->comm,
                          epx_fail(EPX_ERR_REQUEST, "the request was made in a capture, where only "
                                                    "EPX_Wait_enqueue completes it"));
}

/* Takes the outcome of an operation that is complete, or none. */
static int finish(EPX_Request *operation, MPI_Status *status)
{
    if (*operation != EPX_REQUEST_NULL)
        return take(operation, status);
    fill_status(status, 0, EPX_SUCCESS);
    return EPX_SUCCESS;
}

/* Waits for a request that was checked, and completes it. */
static int complete(EPX_Request *request, MPI_Status *status)
{
    EPX_Request *operation = operation_of(request);

    if (*operation != EPX_REQUEST_NULL)
        wait_for(*operation);
    return finish(operation, status);
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
    EPX_TRY(check_completable(request));
    return complete(request, status);
}

static int check_list(int n, EPX_Request *requests)
{
    EPX_TRY(epx_api_request_list(n, requests));
    for (int i = 0; i < n; i++)
        EPX_TRY(check_completable(&requests[i]));
    return EPX_SUCCESS;
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
    EPX_Request *operation;

    EPX_API_ENTER();
    EPX_TRY(check_completable(request));
    EPX_API_FAIL_IF(!flag, EPX_ERR_ARG, "flag is NULL");
    operation = operation_of(request);
    *flag = *operation == EPX_REQUEST_NULL || is_complete(*operation);
    return *flag ? finish(operation, status) : EPX_SUCCESS;
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
    int failed = 0;

    EPX_API_ENTER();
    EPX_TRY(check_list(n, requests));
    queue_rests(n, requests);
    for (int i = 0; i < n; i++) {
        MPI_Status *status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : &statuses[i];

        failed |= complete(&requests[i], status) != EPX_SUCCESS;
    }
    return failed ? EPX_ERR_IN_STATUS : EPX_SUCCESS;
}

static int wait_enqueue(EPX_Request *handle, EPX_Stream stream)
{
    struct epx_request *request = *handle;
    const struct epx_device_ops *ops = epx_transport_device_ops(request->comm);

    EPX_TRY(ops->wait_enqueue(request, stream));
    *handle = EPX_REQUEST_NULL;
    epx_handle_remove(&request->handle);
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
    EPX_Request *operation;
    struct epx_comm *comm;
    int rc = EPX_SUCCESS, pending;

    EPX_API_ENTER();
    EPX_TRY(epx_api_request_at(request));
    operation = operation_of(request);
    if (*operation == EPX_REQUEST_NULL || !(*operation)->launch)
        return EPX_Wait(request, MPI_STATUS_IGNORE);
    comm = (*operation)->comm;
    epx_lock();
    pending = !(*operation)->complete;
    if (pending)
        rc = wait_enqueue(operation, stream);
    epx_unlock();
    return pending ? epx_api_return(comm, rc) : EPX_Wait(request, MPI_STATUS_IGNORE);
}

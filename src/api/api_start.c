/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * api_start.c - EPX_Start, EPX_Startall, EPX_Request_free.
 *
 * A persistent request starts operations like any other: each is a request, which the functions of
 * api_request.c complete in its place, and which it keeps for the next start. An operation that
 * EPX_Wait_enqueue has left to the GPU is not kept: it may still be in flight when the next starts.
 */
#include "api/api.h"
#include "api/profile.h"
#include "core/progress.h"

EPX_PROFILED(Start)
EPX_PROFILED(Startall)
EPX_PROFILED(Request_free)

static int check_inactive(const struct epx_request *request)
{
    EPX_FAIL_IF(!request->persistent, EPX_ERR_REQUEST,
                "the request is of one operation, want a persistent one");
    EPX_FAIL_IF(request->started, EPX_ERR_REQUEST, "the request is active; wait for it first");
    return EPX_SUCCESS;
}

/* Whether it is a persistent request that is inactive. */
static int check_persistent(const EPX_Request *request, struct epx_comm **comm)
{
    EPX_TRY(epx_check_request_at(request, comm));
    EPX_FAIL_IF(*request == EPX_REQUEST_NULL, EPX_ERR_REQUEST, "request is EPX_REQUEST_NULL");
    return check_inactive(*request);
}

static int check_to_start(const EPX_Request *request, struct epx_comm **comm)
{
    EPX_TRY(check_persistent(request, comm));
    EPX_FAIL_IF(!(*comm)->handle.held, EPX_ERR_COMM, "the communicator of the request was freed");
    return EPX_SUCCESS;
}

/* Releases the lock meanwhile: a driver of GPUs, which is asked about buffers, may wait for what
 * another thread does with the lock. */
static int check_arguments(const struct epx_request *persistent)
{
    int rc;

    if (!epx_checks_start(persistent))
        return EPX_SUCCESS;
    epx_unlock();
    rc = epx_check_start(persistent);
    epx_lock();
    return rc;
}

/* Starts an operation after all checks. */
static int start(struct epx_request *persistent)
{
    struct epx_request *operation = epx_request_again(persistent);

    EPX_FAIL_IF(!operation, EPX_ERR_NO_MEM, "no memory for a request");
    EPX_TRY(epx_request_submit(operation));
    persistent->started = operation;
    return EPX_SUCCESS;
}

/* With the lock held: checks all, then starts all. */
static int start_all(int n, EPX_Request requests[], struct epx_comm **comm)
{
    for (int i = 0; i < n; i++) {
        EPX_TRY(check_to_start(&requests[i], comm));
        EPX_TRY(check_arguments(requests[i]));
    }
    for (int i = 0; i < n; i++) {
        *comm = requests[i]->comm;
        EPX_TRY(start(requests[i]));
    }
    return EPX_SUCCESS;
}

/*
 * EPX_Start - start the operation of a persistent request.
 *
 * Collective, nonblocking, as the call that the request was made by without _init.
 * In/out: request, persistent and inactive; active then, until EPX_Wait or one of its relatives.
 * Errors: EPX_ERR_REQUEST for any other request, which stays as it is; EPX_ERR_COMM if the
 * communicator was freed; else as EPX_Alltoallv, on its completion too. The request stays inactive.
 */
int EPX_Start(EPX_Request *request)
{
    struct epx_comm *comm;
    int rc;

    EPX_API_ENTER();
    epx_lock();
    rc = start_all(1, request, &comm);
    epx_unlock();
    return epx_api_return(comm, rc);
}

/*
 * EPX_Startall - start several persistent requests.
 *
 * As EPX_Start of each, in the order of the list, which is the same on all ranks.
 * Input: n. In/out: requests, [n].
 * Errors: EPX_ERR_COUNT if n < 0; EPX_ERR_ARG if requests is NULL; EPX_ERR_REQUEST, for the same
 * request twice too; else as EPX_Start. All are checked before the first is started.
 */
int EPX_Startall(int n, EPX_Request requests[])
{
    struct epx_comm *comm;
    int rc;

    EPX_API_ENTER();
    epx_lock();
    rc = epx_check_request_list(n, requests, &comm);
    if (rc == EPX_SUCCESS)
        rc = start_all(n, requests, &comm);
    epx_unlock();
    return epx_api_return(comm, rc);
}

/*
 * EPX_Request_free - free a persistent request.
 *
 * Local. In/out: request, persistent and inactive; set to EPX_REQUEST_NULL.
 * Errors: EPX_ERR_REQUEST for any other request, which stays as it is.
 */
int EPX_Request_free(EPX_Request *request)
{
    struct epx_comm *comm;
    int rc;

    EPX_API_ENTER();
    epx_lock();
    rc = check_persistent(request, &comm);
    epx_unlock();
    EPX_TRY(epx_api_return(comm, rc));
    epx_request_free(*request);
    *request = EPX_REQUEST_NULL;
    return EPX_SUCCESS;
}

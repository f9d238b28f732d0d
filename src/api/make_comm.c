/* SPDX-License-Identifier: BSD-3-Clause */
/* make_comm.c - a communicator from its allocation to its handle. */
#include "api/api.h"
#include "coll/attach.h"
#include "core/agree.h"
#include "core/birth.h"
#include "core/progress.h"

/* On device memory the GPU progresses, and a thread only hears from the control plane who is gone,
 * if that tells: it ends kernels that wait for a dead rank while the host waits for them. */
static int choose_progress(struct epx_comm *comm)
{
    int rc = EPX_SUCCESS;

    if (comm->params.progress == EPX_PROGRESS_CALLS)
        return EPX_SUCCESS;
    if (comm->transport->device && !(comm->control.ops && comm->control.ops->lost)) {
        comm->params.progress = EPX_PROGRESS_CALLS;
        return EPX_SUCCESS;
    }
    if (comm->transport->device || comm->transport->ops->threads)
        rc = epx_comm_start_thread(comm, comm->transport->device != NULL);
    else {
        if (comm->rank == 0)
            EPX_LOG_WARN("epx_progress=thread: transport %s is progressed by calls only",
                         epx_transport_name(comm));
        comm->params.progress = EPX_PROGRESS_CALLS;
    }
    return epx_comm_agree(comm, rc);
}

/* All that can fail on one rank alone comes before epx_birth_settle, and is agreed on. */
static int make(struct epx_comm *created, const struct epx_origin *origin, int rc)
{
    rc = epx_comm_begin(created, origin, rc);
    if (rc == EPX_SUCCESS)
        rc = epx_transport_attach(created);
    if (rc == EPX_SUCCESS)
        rc = choose_progress(created);
    rc = epx_birth_settle(created, rc);
    epx_birth_end(created);
    return rc;
}

int epx_api_make_comm(struct epx_comm *created, const struct epx_origin *origin, int own_rc,
                      struct epx_comm **newcomm)
{
    int rc = own_rc;

    if (!created)
        return rc;
    rc = make(created, origin, rc);
    if (rc != EPX_SUCCESS) {
        epx_api_free_comm(created);
        return rc;
    }
    epx_handle_add(&created->handle, EPX_HANDLE_COMM);
    *newcomm = created;
    return EPX_SUCCESS;
}

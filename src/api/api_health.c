/* SPDX-License-Identifier: BSD-3-Clause */
/* api_health.c - EPX_Comm_get_waits, EPX_Comm_get_ranks, EPX_Comm_shrink. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/profile.h"
#include "coll/attach.h"
#include "control/contact.h"
#include "core/graph/graph.h"
#include "core/health/comm_end.h"
#include "core/health/survivors.h"
#include "core/progress.h"
#include "core/route.h"
#include "transport/module.h"

EPX_PROFILED(Comm_get_waits)
EPX_PROFILED(Comm_get_ranks)
EPX_PROFILED(Comm_shrink)

/*
 * EPX_Comm_get_waits - get how long this rank has waited for each other one.
 *
 * Local; never waits for the GPU. Counts what operations of the communicator waited since it was
 * made, of those that wait now too.
 * Input: comm; waits->size, sizeof(EPX_Waits); waits->num_ranks, the elements of the arrays, 0 = as
 * many as ranks. In/out: waits: num_ranks, the ranks of comm; ns, [num_ranks] or NULL, nanoseconds
 * waited for each rank; operations, [num_ranks] or NULL, in how many operations this rank waited
 * longest for it.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG if waits is NULL or too small, or has arrays that are.
 * See also: EPX_Comm_get_stats.
 */
int EPX_Comm_get_waits(EPX_Comm comm, EPX_Waits *waits)
{
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    epx_lock();
    rc = epx_waits_copy(&comm->waits, waits);
    epx_unlock();
    return epx_api_return(comm, rc);
}

/*
 * EPX_Comm_get_ranks - get for each rank its rank in what the communicator was made from.
 *
 * Local. Input: comm. Output: parent_ranks, [size]: the rank in the communicator that was shrunk,
 * or in that of MPI or the bootstrap, where it is the same.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG if parent_ranks is NULL.
 * See also: EPX_Comm_shrink.
 */
int EPX_Comm_get_ranks(EPX_Comm comm, int parent_ranks[])
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    if (!parent_ranks)
        return epx_api_return(comm, epx_fail(EPX_ERR_ARG, "parent_ranks is NULL"));
    for (int r = 0; r < comm->size; r++)
        parent_ranks[r] = comm->parent_ranks ? comm->parent_ranks[r] : r;
    return EPX_SUCCESS;
}

/* A whole communicator ends here and on all ranks: it is shrunk because it shall not go on. */
static void end(struct epx_comm *comm)
{
    epx_lock();
    if (!comm->finished)
        epx_comm_give_up(comm, "EPX_Comm_shrink: the communicator is shrunk");
    epx_unlock();
    epx_comm_stop_thread(comm);
    epx_comm_drain(comm);
}

/* Hints of the old communicator; what only MPI can do is left to auto. */
static struct epx_params smaller_params(const struct epx_comm *comm)
{
    struct epx_params params = comm->params;

    if (strstr(epx_param_transports[params.transport], "mpi"))
        params.transport = 0;
    params.control = EPX_CONTROL_AUTO;
    return params;
}

/* A communicator of a group that is to be made; rc is this rank's result so far. */
struct smaller {
    struct epx_comm *comm;
    const struct epx_survivors_group *group;
    int rc;
    struct epx_comm **newcomm;
};

static int make_smaller(void *argument)
{
    const struct smaller *smaller = argument;
    struct epx_comm *comm = smaller->comm;
    const struct epx_survivors_group *group = smaller->group;
    const struct epx_contact_group contact = {group->own, group->num, epx_survivors_allgather, comm,
                                              1};
    const struct epx_origin origin = {.group = &contact};
    const struct epx_params params = smaller_params(comm);
    const size_t bytes = (size_t)group->num * sizeof(*group->ranks);
    struct epx_comm *created;
    int rc = smaller->rc;

    created = epx_comm_allocate(&params, &rc);
    if (created)
        created->parent_ranks = malloc(bytes);
    if (created && created->parent_ranks)
        memcpy(created->parent_ranks, group->ranks, bytes);
    else if (created && rc == EPX_SUCCESS)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for %d ranks", group->num);
    return epx_api_make_comm(created, &origin, rc, smaller->newcomm);
}

/* Notes who did not go on. */
static int note_lost(struct epx_comm *comm, const struct epx_survivors_group *group)
{
    const size_t ranks = (size_t)comm->size;

    if (!comm->lost)
        comm->lost = malloc(ranks);
    EPX_FAIL_IF(!comm->lost, EPX_ERR_NO_MEM, "no memory for %zu ranks", ranks);
    memset(comm->lost, 1, ranks);
    for (int i = 0; i < group->num; i++)
        comm->lost[group->ranks[i]] = 0;
    return EPX_SUCCESS;
}

/*
 * Collective over the group. On device memory this rank first unmaps what the others have: the new
 * communicator is there only when all have done so, and then each of them can free its own memory.
 */
static int go_on(struct epx_comm *comm, const struct epx_survivors_group *group,
                 struct epx_comm **newcomm)
{
    const struct epx_device_ops *ops = epx_transport_device_ops(comm);
    struct smaller smaller = {comm, group, note_lost(comm, group), newcomm};

    if (!ops)
        return make_smaller(&smaller);
    if (smaller.rc == EPX_SUCCESS)
        smaller.rc = ops->leave(comm->transport->device);
    return ops->run(comm->transport->device, make_smaller, &smaller);
}

/* Frees routes that were freed while others could still store into them. */
static void free_buried_routes(struct epx_comm *comm)
{
    while (comm->buried) {
        struct epx_route *route = comm->buried;

        comm->buried = route->next;
        epx_route_retain(route);
        epx_route_release(route);
    }
}

static int fence_windows(const struct epx_comm *comm)
{
    const struct epx_transport *transport = comm->transport;

    EPX_TRY(transport->ops->window_fence(transport->state, NULL));
    for (struct epx_segment *s = comm->segments; s; s = s->next)
        if (!s->is_spare)
            EPX_TRY(transport->ops->window_fence(transport->state, s->window));
    return EPX_SUCCESS;
}

/* From now on no rank stores into memory of the communicator, so that it can be freed. */
static void fence(struct epx_comm *comm)
{
    const struct epx_transport *transport = comm->transport;

    if (!transport || !transport->ops->window_fence || comm->spare)
        return;
    epx_lock();
    comm->liveness.ops = NULL;
    comm->fenced = fence_windows(comm) == EPX_SUCCESS;
    if (!comm->fenced)
        EPX_LOG_WARN("what the communicator had stays allocated: %s", epx_status_message());
    epx_unlock();
    if (!comm->fenced)
        return;
    free_buried_routes(comm);
    epx_graph_free_buried(comm);
}

/*
 * EPX_Comm_shrink - make a communicator of the ranks that live.
 *
 * Collective over the ranks of comm that live, blocking, bounded by twice epx_timeout_ms, and on
 * device memory by what is queued on the GPU. comm may be finished; if it is not, it is then, on
 * all ranks. All that live get the same communicator, with the hints of comm and the ranks in their
 * old order, or the same error. The ranks agree over sockets afterwards, and MPI is not called.
 * Behind it no rank stores into memory of comm any more. What a lost rank has mapped of a GPU is
 * freed once its process has ended.
 * Input: comm; free it afterwards, as its routes and memory. Output: newcomm, EPX_COMM_NULL on
 * error.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG if newcomm is NULL; EPX_ERR_TIMEOUT if ranks die meanwhile, or
 * the others went on without this rank; it may be called again. Else as EPX_Comm_create_from.
 * See also: EPX_Comm_get_ranks.
 */
int EPX_Comm_shrink(EPX_Comm comm, EPX_Comm *newcomm)
{
    struct epx_survivors_group group;
    int rc;

    EPX_API_ENTER();
    if (newcomm)
        *newcomm = EPX_COMM_NULL;
    EPX_TRY(epx_api_comm(comm));
    if (!newcomm)
        return epx_api_return(comm, epx_fail(EPX_ERR_ARG, "newcomm is NULL"));
    end(comm);
    rc = epx_survivors_find(comm, &group);
    if (rc == EPX_SUCCESS)
        rc = go_on(comm, &group, newcomm);
    if (rc == EPX_SUCCESS) {
        epx_survivors_leave_others(comm);
        fence(comm);
    }
    return epx_api_return(comm, rc);
}

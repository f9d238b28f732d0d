/* SPDX-License-Identifier: BSD-3-Clause */
/* api_route.c - EPX_Route_*. */
#include "api/api.h"
#include "api/profile.h"
#include "coll/ground.h"
#include "core/agree.h"
#include "core/progress.h"

EPX_PROFILED(Route_create)
EPX_PROFILED(Route_free)
EPX_PROFILED(Route_set_capacity)
EPX_PROFILED(Route_set_counts)
EPX_PROFILED(Route_tokens)
EPX_PROFILED(Route_get_view)

static int route_create(const EPX_Route_attr *attr, struct epx_comm *comm, EPX_Route *route)
{
    EPX_Route_attr checked;
    struct epx_route *created;
    int rc;

    EPX_FAIL_IF(!route, EPX_ERR_ARG, "route is NULL");
    EPX_TRY(epx_route_read_attr(attr, &checked));
    EPX_TRY(epx_route_create(comm, &checked, &created));
    rc = comm->transport->ground->route_create(created);
    if (rc != EPX_SUCCESS) {
        epx_route_release(created);
        return rc;
    }
    epx_route_enlist(created);
    *route = created;
    return EPX_SUCCESS;
}

/*
 * EPX_Route_create - make a route: the room for one routing of tokens to experts.
 *
 * Collective, blocking.
 * Input: attr, see epx.h; num_experts, top_k, max_tokens, alignment, max_row_bytes, layout and
 * overflow and rows_per_expert must be the same on all ranks; comm. Output: route.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG (attribute out of range, that the layout does not take, or
 * different across ranks); EPX_ERR_COUNT (max_tokens, recv_capacity or max_row_bytes negative, or
 * a receive buffer of more than INT32_MAX rows); EPX_ERR_NO_MEM and EPX_ERR_TIMEOUT on all ranks.
 */
int EPX_Route_create(const EPX_Route_attr *attr, EPX_Comm comm, EPX_Route *route)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    return epx_api_return(comm, route_create(attr, comm, route));
}

/*
 * EPX_Route_free - free a route.
 *
 * Collective; does not wait. Operations in flight on the route hold it until they complete. The
 * view's addresses are not valid any more.
 * In/out: route, set to EPX_ROUTE_NULL. Errors: EPX_ERR_ROUTE; EPX_ERR_ARG for a
 * NULL pointer.
 */
int EPX_Route_free(EPX_Route *route)
{
    EPX_API_ENTER();
    EPX_API_FAIL_IF(!route, EPX_ERR_ARG, "route is NULL");
    EPX_TRY(epx_api_route(*route));
    epx_lock();
    epx_route_unlist(*route);
    epx_route_release(*route);
    epx_unlock();
    *route = EPX_ROUTE_NULL;
    return EPX_SUCCESS;
}

/* What creation was given may be more than the worst case, which is the route's capacity then. */
static int set_capacity(struct epx_route *route, int64_t recv_capacity)
{
    const int64_t asked = route->attr.recv_capacity, own = route->capacity;
    const int64_t most = asked > own ? asked : own;

    EPX_FAIL_IF(recv_capacity < 0 || recv_capacity > most, EPX_ERR_ARG,
                "recv_capacity is %lld, want 0 to %lld, the capacity of the route",
                (long long)recv_capacity, (long long)most);
    EPX_FAIL_IF(route->attr.layout == EPX_EXPERT_SLAB && recv_capacity != route->capacity,
                EPX_ERR_ARG, "recv_capacity is %lld, want %lld: slabs stay as they are",
                (long long)recv_capacity, (long long)route->capacity);
    epx_lock();
    route->next_capacity = recv_capacity < own ? recv_capacity : own;
    epx_unlock();
    return EPX_SUCCESS;
}

/*
 * EPX_Route_set_capacity - set the rows of this rank's receive buffer from the next routing on.
 *
 * Local. Operations on an earlier routing keep its capacity; a routing that is captured in a graph
 * keeps what was set when it was called.
 * Input: route; recv_capacity, rows, 0 to the capacity of the route (EPX_Route_view), may differ
 * by rank. Receive buffers need so many rows only. With EPX_EXPERT_SLAB the capacity of the route
 * alone is allowed.
 * Errors: EPX_ERR_ROUTE; EPX_ERR_ARG if recv_capacity is out of range.
 */
int EPX_Route_set_capacity(EPX_Route route, int64_t recv_capacity)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm, set_capacity(route, recv_capacity));
}

static int set_counts(struct epx_route *route, int32_t *counts)
{
    const int64_t num = 2 * (int64_t)route->view.num_local_experts + 1;
    const struct epx_buffer buffer = {.name = "counts",
                                      .address = counts,
                                      .rows = num,
                                      .row_bytes = sizeof(*counts),
                                      .alignment = sizeof(*counts),
                                      .written = 1};

    EPX_FAIL_IF(counts && route->attr.layout == EPX_RANK_MAJOR, EPX_ERR_ARG,
                "counts are those of slabs: the rank-major layout has none");
    EPX_TRY(epx_check_buffers(route->comm, &buffer, 1));
    epx_lock();
    route->counts = counts;
    epx_unlock();
    return EPX_SUCCESS;
}

/*
 * EPX_Route_set_counts - have routings write their counts to memory of the caller too.
 *
 * Local. From the next routing on, so that they outlive it without a copy; a routing that is
 * captured in a graph writes to what was set when it was called.
 * Input: route. Output: counts, [2 * L + 1] in the communicator's memory, or NULL = no more:
 * expert_counts of the view, a 0 and its expert_ends; filled when the routing's request completes.
 * If a rank lacks room or an id was bad they are those of the view; after another error of the
 * routing they mean nothing on the host, and are 0 in device memory if the routing's kernels ran.
 * Errors: EPX_ERR_ROUTE; EPX_ERR_ARG in the rank-major layout; EPX_ERR_BUFFER.
 */
int EPX_Route_set_counts(EPX_Route route, int32_t *counts)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm, set_counts(route, counts));
}

static int route_tokens(const void *expert_ids, int num_tokens, struct epx_route *route,
                        EPX_Stream stream, EPX_Request *request)
{
    struct epx_buffer ids = epx_ids_buffer(route, expert_ids, num_tokens);
    struct epx_request *queued;

    EPX_TRY(epx_check_tokens(route, num_tokens, request));
    EPX_TRY(epx_check_buffers(route->comm, &ids, 1));
    queued = epx_request_create(route->comm, route);
    EPX_FAIL_IF(!queued, EPX_ERR_NO_MEM, "no memory for a request");
    queued->call.verb = EPX_VERB_ROUTE_TOKENS;
    queued->call.stream = stream;
    queued->call.expert_ids = expert_ids;
    queued->call.num_tokens = num_tokens;
    queued->call.recv_capacity = route->next_capacity;
    queued->call.counts = route->counts;
    epx_ground_prepare(queued);
    EPX_TRY(epx_request_submit(queued));
    epx_note_routing(route, &queued->call);
    *request = queued;
    return EPX_SUCCESS;
}

/*
 * EPX_Route_tokens - decide which row of which rank every (token, choice) goes to.
 *
 * Collective, nonblocking; comes after all earlier operations on the route, on every rank.
 * Input: expert_ids, [num_tokens][top_k] of index_bits, -1 = no expert, read until the request
 * completes; num_tokens, 0..max_tokens, may differ by rank; route; stream, that the work is queued
 * on (host memory: ignored). Output: request; when it completes the view is filled.
 * Errors: EPX_ERR_ROUTE, EPX_ERR_ARG (request NULL), EPX_ERR_COUNT, EPX_ERR_BUFFER. The request
 * completes with EPX_ERR_TRUNCATE on all ranks if a rank or a slab lacks room under
 * EPX_OVERFLOW_ERROR; with EPX_ERR_ARG on the rank that gave ids out of range, which count as -1,
 * the routing is valid; with EPX_ERR_ARG on all ranks if they called different operations; with
 * EPX_ERR_TIMEOUT.
 */
int EPX_Route_tokens(const void *expert_ids, int num_tokens, EPX_Route route, EPX_Stream stream,
                     EPX_Request *request)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm,
                          route_tokens(expert_ids, num_tokens, route, stream, request));
}

/*
 * EPX_Route_get_view - get the addresses of what a routing decided.
 *
 * Local. The addresses stay the same for the life of the route; what they point to is filled
 * when the request of EPX_Route_tokens completes and changes with the next.
 * Input: route; view->size, sizeof(EPX_Route_view). Output: view.
 * Errors: EPX_ERR_ROUTE; EPX_ERR_ARG if view is NULL or too small.
 */
int EPX_Route_get_view(EPX_Route route, EPX_Route_view *view)
{
    EPX_API_ENTER();
    EPX_TRY(epx_api_route(route));
    return epx_api_return(route->comm, epx_route_copy_view(route, view));
}

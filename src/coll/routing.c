/* SPDX-License-Identifier: BSD-3-Clause */
/* routing.c - the plan of a route: memory, windows, view, and the steps of a routing. */
#include "coll/routing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/jitter.h"
#include "base/machine.h"
#include "coll/attach.h"
#include "coll/ground.h"
#include "coll/route_plan.h"
#include "coll/verbs.h"
#include "core/agree.h"
#include "core/verdict.h"
#include "kernels/node_rows.h"

/* Where the parts that ranks exchange lie in each rank's window. */
struct window_layout {
    size_t matrix, records, pair_weights, bytes;
};

static size_t line_up(size_t bytes)
{
    return (size_t)epx_round_up((int64_t)bytes, EPX_LINE_BYTES);
}

static struct window_layout layout_window(const struct epx_plan *plan)
{
    struct window_layout layout = {0};
    size_t ranks = (size_t)plan->num_ranks, tokens = (size_t)plan->shape.max_tokens;

    layout.records = line_up(ranks * epx_count_words(plan->count_shape) * sizeof(int32_t));
    layout.pair_weights =
        layout.records + line_up(ranks * tokens * epx_record_bytes(plan->record_shape));
    layout.bytes =
        layout.pair_weights + line_up(tokens * (size_t)plan->shape.top_k * sizeof(float));
    return layout;
}

static void fix_plan(struct epx_plan *plan, const struct epx_route *route)
{
    plan->rank = route->comm->rank;
    plan->num_ranks = route->comm->size;
    plan->node = route->comm->node;
    plan->shape = epx_plan_shape_of(route);
    plan->count_shape.num_experts = plan->shape.num_experts;
    plan->count_shape.num_ranks = plan->num_ranks;
    plan->record_shape = epx_record_shape(plan->shape.top_k, plan->shape.rank_major);
    plan->short_rank = plan->short_expert = -1;
}

static void allocate_home(struct epx_plan *plan)
{
    struct epx_arrays *all = &plan->arrays;
    int64_t ranks = plan->num_ranks, experts = plan->shape.num_experts;
    int64_t tokens = plan->shape.max_tokens, pairs = tokens * plan->shape.top_k;
    int64_t rows = tokens * (plan->shape.top_k < ranks ? plan->shape.top_k : ranks);

    EPX_ARRAY(all, plan->owner, experts);
    EPX_ARRAY(all, plan->first_expert, ranks + 1);
    EPX_ARRAY(all, plan->rank_order, ranks);
    EPX_ARRAY(all, plan->capacities, ranks);
    EPX_ARRAY(all, plan->pair_experts, pairs);
    EPX_ARRAY(all, plan->pair_ranks, pairs);
    EPX_ARRAY(all, plan->send_offset, ranks + 1);
    EPX_ARRAY(all, plan->send_rows, ranks);
    EPX_ARRAY(all, plan->send_token, rows);
    EPX_ARRAY(all, plan->send_slot, rows);
    EPX_ARRAY(all, plan->token_offset, tokens + 1);
    EPX_ARRAY(all, plan->token_rank, rows);
    EPX_ARRAY(all, plan->token_slot, rows);
    EPX_ARRAY(all, plan->token_row, rows);
    EPX_ARRAY(all, plan->next_slot, experts);
    EPX_ARRAY(all, plan->next_row, ranks);
    EPX_ARRAY(all, plan->last_token, ranks);
    EPX_ARRAY(all, plan->listed_rows, ranks);
    EPX_ARRAY(all, plan->open_records, ranks);
    EPX_ARRAY(all, plan->token_rows, tokens);
    EPX_ARRAY(all, plan->record_to, ranks);
    EPX_ARRAY(all, plan->matrix_of, ranks);
    EPX_ARRAY(all, plan->records_of, ranks);
    EPX_ARRAY(all, plan->pair_weights_of, ranks);
    EPX_ARRAY(all, plan->own_counts, (int64_t)epx_count_words(plan->count_shape));
    EPX_ARRAY(all, plan->view.slots, pairs);
}

static void allocate_expert(struct epx_plan *plan, int64_t capacity)
{
    struct epx_arrays *all = &plan->arrays;
    struct epx_plan_view *view = &plan->view;

    EPX_ARRAY(all, plan->recv_rows, plan->num_ranks);
    EPX_ARRAY(all, view->expert_counts, plan->shape.num_local);
    EPX_ARRAY(all, view->expert_offsets, plan->shape.num_local + 1);
    EPX_ARRAY(all, view->rank_counts, plan->num_ranks);
    EPX_ARRAY(all, view->row_expert_ids, plan->shape.rank_major ? capacity * plan->shape.top_k : 0);
    EPX_ARRAY(all, view->row_tokens, capacity);
    EPX_ARRAY(all, view->row_ranks, capacity);
    EPX_ARRAY(all, view->row_choices, plan->shape.rank_major ? 0 : capacity);
    EPX_ARRAY(all, plan->row_weights, plan->shape.rank_major ? 0 : capacity);
    EPX_ARRAY(all, view->num_rows, 1);
    EPX_ARRAY(all, view->required_rows, 1);
    EPX_ARRAY(all, view->expert_ends, plan->shape.num_local);
    EPX_ARRAY(all, view->group_sizes, plan->shape.num_local);
    EPX_ARRAY(all, view->overflow, 1);
    view->arrived_rows = view->num_rows;
    if (plan->shape.rows_per_expert)
        EPX_ARRAY(all, view->arrived_rows, 1);
}

static void plan_free(struct epx_route *route)
{
    if (!route->plan)
        return;
    epx_transport_window_free(route->transport, route->window);
    epx_arrays_free(&route->plan->arrays);
    free(route->plan);
    route->plan = NULL;
}

/* Expects sizes that numbers can hold: then so do all sums of layout_window. */
static int find_capacity(struct epx_route *route)
{
    const struct epx_plan *plan = route->plan;
    int64_t tokens = (int64_t)plan->num_ranks * plan->shape.max_tokens, records;

    EPX_FAIL_IF(epx_count_words(plan->count_shape) > INT32_MAX / sizeof(int32_t), EPX_ERR_COUNT,
                "counts of %d experts do not fit one message", plan->shape.num_experts);
    EPX_FAIL_IF(
        __builtin_mul_overflow(tokens, (int64_t)epx_record_bytes(plan->record_shape), &records) ||
            records > INT64_MAX / 4,
        EPX_ERR_COUNT, "max_tokens is %d: records of %lld tokens are too many bytes",
        plan->shape.max_tokens, (long long)tokens);
    return epx_route_find_capacity(route, &route->plan->shape);
}

/* Allocates the records that this rank sends: they are made here before they go to other ranks. */
static void allocate_records(struct epx_plan *plan)
{
    int32_t most = plan->shape.top_k < plan->num_ranks ? plan->shape.top_k : plan->num_ranks;

    plan->own_records = epx_arrays_add(&plan->arrays, (int64_t)plan->shape.max_tokens * most,
                                       epx_record_bytes(plan->record_shape));
}

/* Expects private memory for all arrays, and for a window that is private, on this machine: Linux
 * may promise more than that. */
static int check_memory(const struct epx_route *route)
{
    const struct epx_plan *plan = route->plan;
    uint64_t bytes = plan->arrays.bytes, machine = epx_machine_memory();
    uint64_t window = route->transport->staged ? layout_window(plan).bytes : 0;

    EPX_FAIL_IF(plan->arrays.failed || __builtin_add_overflow(bytes, window, &bytes) ||
                    bytes > machine,
                EPX_ERR_NO_MEM,
                "a route of %d tokens of %d choices to %lld rows takes %llu bytes of private "
                "memory on each rank, of %llu that the machine has",
                plan->shape.max_tokens, plan->shape.top_k, (long long)route->capacity,
                (unsigned long long)bytes, (unsigned long long)machine);
    return EPX_SUCCESS;
}

static void add_arrays(const struct epx_route *route)
{
    allocate_home(route->plan);
    allocate_expert(route->plan, route->capacity);
    if (route->transport->staged)
        allocate_records(route->plan);
}

static int allocate(struct epx_route *route)
{
    struct epx_plan *plan = route->plan;

    plan->arrays.measures = 1;
    add_arrays(route);
    EPX_TRY(check_memory(route));
    plan->arrays = (struct epx_arrays){0};
    add_arrays(route);
    EPX_TRY(check_memory(route));
    epx_nodes_order(route->comm->node, route->comm->num_nodes, plan->num_ranks, plan->rank_order);
    if (!route->transport->ground->plan_create)
        return EPX_SUCCESS;
    EPX_TRY(route->transport->ground->plan_create(route->comm, plan));
    return check_memory(route);
}

/* Writes what does not change later, once all memory was had. */
static void fill(struct epx_plan *plan)
{
    epx_find_owners(plan->owner, plan->shape.num_experts, plan->num_ranks);
    for (int32_t r = 0; r <= plan->num_ranks; r++)
        plan->first_expert[r] = epx_first_expert(r, plan->shape.num_experts, plan->num_ranks);
    memset(plan->view.slots, 0xff,
           (size_t)plan->shape.max_tokens * (size_t)plan->shape.top_k * sizeof(*plan->view.slots));
}

static void place_window(struct epx_route *route)
{
    struct epx_plan *plan = route->plan;
    struct window_layout layout = layout_window(plan);

    epx_poison(route->window->own, layout.bytes);
    plan->matrix = (int32_t *)(void *)route->window->own;
    plan->records = (int32_t *)(void *)(route->window->own + layout.records);
    plan->pair_weights = (float *)(void *)(route->window->own + layout.pair_weights);
    for (int32_t r = 0; r < plan->num_ranks; r++) {
        char *there = route->window->address[r];

        if (!there)
            continue;
        plan->matrix_of[r] = (int32_t *)(void *)there;
        plan->records_of[r] = (int32_t *)(void *)(there + layout.records);
        plan->pair_weights_of[r] = (float *)(void *)(there + layout.pair_weights);
    }
}

/* Collective, agreed: makes the window of a transport that needs no shared memory. */
static int fall_back(struct epx_route *route, size_t bytes)
{
    const char *short_of = route->transport->name;
    char why[EPX_MAX_ERROR_STRING], instead[64];

    snprintf(why, sizeof(why), "%s", epx_status_message());
    EPX_TRY(epx_transport_spare(route->comm, &route->transport));
    allocate_records(route->plan);
    EPX_TRY(epx_comm_agree(route->comm, check_memory(route)));
    EPX_TRY(epx_transport_window_create(route->transport, bytes, &route->window));
    snprintf(instead, sizeof(instead), "transport %s is used for a route instead of %s",
             route->transport->name, short_of);
    epx_transport_tell(route->comm, &route->comm->told_routes, instead, why);
    return EPX_SUCCESS;
}

static int create_window(struct epx_route *route)
{
    size_t bytes = layout_window(route->plan).bytes;
    int rc;

    if (!epx_transport_may_spare(route->comm))
        return epx_transport_window_create(route->transport, bytes, &route->window);
    epx_attempt_begin();
    rc = epx_transport_window_create(route->transport, bytes, &route->window);
    epx_attempt_end(rc, rc == EPX_ERR_NO_MEM);
    return rc == EPX_ERR_NO_MEM ? fall_back(route, bytes) : rc;
}

/*
 * Asks first, touches later: sizes, then all private memory, then the window, on all ranks; only
 * then is anything large written.
 */
int epx_routing_create(struct epx_route *route)
{
    struct epx_comm *comm = route->comm;
    int rc;

    route->plan_free = plan_free;
    route->transport = comm->transport;
    route->plan = epx_memory_zeroed(1, sizeof(*route->plan));
    rc = route->plan ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for a plan");
    if (rc == EPX_SUCCESS) {
        fix_plan(route->plan, route);
        rc = find_capacity(route);
    }
    if (rc == EPX_SUCCESS)
        rc = allocate(route);
    EPX_TRY(epx_comm_agree(comm, rc));
    EPX_TRY(create_window(route));
    place_window(route);
    fill(route->plan);
    epx_route_show_view(route, &route->plan->shape, &route->plan->view);
    return EPX_SUCCESS;
}

void epx_routing_count(struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    struct epx_plan *plan = request->route->plan;
    struct epx_count_pairs args = {0};

    args.ids = call->expert_ids;
    args.owner = plan->owner;
    args.num_tokens = call->num_tokens;
    args.capacity = (int32_t)call->recv_capacity;
    args.top_k = plan->shape.top_k;
    args.index_bits = plan->shape.index_bits;
    args.shape = plan->count_shape;
    args.experts = plan->pair_experts;
    args.counts = plan->own_counts;
    args.last_token = plan->last_token;
    args.bad = &plan->bad;
    epx_count_pairs_host(&args);
}

/* Copies what the view shows of the experts' slabs, if the user wants it. */
static void tell_counts(const struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    const size_t num = (size_t)plan->shape.num_local, bytes = num * sizeof(int32_t);
    int32_t *counts = request->call.counts;

    if (!counts)
        return;
    if (num)
        memcpy(counts, plan->view.expert_counts, bytes);
    counts[num] = 0;
    if (num)
        memcpy(counts + num + 1, plan->view.expert_ends, bytes);
}

static int fail_no_room(const struct epx_plan *plan)
{
    if (plan->short_expert >= 0)
        return epx_fail_full_slab(plan->short_expert, plan->short_pairs,
                                  plan->shape.rows_per_expert);
    return epx_fail_no_room(plan->short_rank, plan->short_rows, plan->capacities[plan->short_rank]);
}

int epx_routing_assign(struct epx_request *request)
{
    struct epx_plan *plan = request->route->plan;

    plan->num_tokens = request->call.num_tokens;
    epx_offset_slabs_host(plan);
    if (plan->short_rank >= 0 && !plan->shape.drops) {
        tell_counts(request);
        return fail_no_room(plan);
    }
    epx_assign_slots_host(plan);
    return EPX_SUCCESS;
}

int epx_routing_finish(struct epx_request *request)
{
    struct epx_plan *plan = request->route->plan;
    struct epx_bad_pair bad;

    epx_index_rows_host(plan);
    tell_counts(request);
    request->route->error = EPX_SUCCESS;
    request->received_rows = *plan->view.arrived_rows;
    request->complete = 1;
    request->comm->stats.dropped_rows += (uint64_t)plan->dropped;
    bad =
        (struct epx_bad_pair){plan->bad.value, plan->bad.token, plan->bad.choice, plan->bad.pairs};
    return bad.num ? epx_fail_bad_id(bad, plan->shape.num_experts) : EPX_SUCCESS;
}

int epx_routing_keep(struct epx_request *request, int error)
{
    struct epx_route *route = request->route;

    if (error != EPX_SUCCESS && !request->complete) {
        route->error = error;
        snprintf(route->message, sizeof(route->message), "%s", epx_status_message());
    }
    return error;
}

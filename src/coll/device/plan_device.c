/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan_device.c - the plan of a route on device memory. All of it is one window: first what
 * other ranks store into, then what only this rank uses.
 */
#include "coll/device/plan_device.h"

#include <stdlib.h>
#include <string.h>

#include "base/jitter.h"
#include "coll/device/staged/device_nodes.h"
#include "coll/route_plan.h"
#include "core/agree.h"
#include "kernels/node_rows.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/device_scope.h"

/*
 * The exchanged parts of the window, in this order, have the same offsets on all ranks. Ranks that
 * exchange messages send records from PART_OUTGOING; the others store PART_TOTALS for an operation
 * that its owner may not have begun.
 */
enum { PART_TOTALS, PART_COUNTS, PART_RECORDS, PART_OUTGOING, PART_WEIGHTS, PART_STAGE, NUM_PARTS };

/* Gives out the window from its start; with base NULL it only measures. What is too much for a
 * number stays SIZE_MAX. */
struct arena {
    char *base;
    size_t used;
};

static void *carve(struct arena *arena, int64_t n, size_t element_bytes)
{
    size_t at = arena->used, bytes;

    if (__builtin_mul_overflow((size_t)n, element_bytes, &bytes) || bytes > PTRDIFF_MAX - 256 ||
        __builtin_add_overflow(at, (size_t)epx_round_up((int64_t)bytes, 256), &arena->used))
        arena->used = SIZE_MAX;
    return arena->base ? arena->base + at : NULL;
}

#define CARVE(arena, member, n) ((member) = carve(arena, n, sizeof(*(member))))

static int exchanges_messages(const struct epx_route *route)
{
    return route->transport->device->proxy != NULL;
}

/* Bytes that may follow a row in a message: its weights, and whether it was kept. */
static int64_t weights_bytes(const struct epx_route *route, const struct epx_device_plan *plan)
{
    return exchanges_messages(route)
               ? epx_round_up((plan->shape.top_k + 1) * (int64_t)sizeof(float), 16)
               : 0;
}

/* Finds the bytes of the route's own stage, 0 = none: at the least a segment of a row from each
 * rank, twice as much where weights may follow the row. */
static int find_stage(const struct epx_route *route, struct epx_device_plan *plan)
{
    int64_t rows = exchanges_messages(route) ? plan->nodes.width : plan->most_rows;
    int64_t least =
        (exchanges_messages(route) ? 2 * rows : route->comm->size) * EPX_SEGMENT_QUANTUM;
    int64_t most = route->attr.max_row_bytes, bytes;

    if (most == 0)
        return EPX_SUCCESS;
    EPX_FAIL_IF(most > INT64_MAX / 2 ||
                    __builtin_mul_overflow(plan->shape.max_tokens * rows,
                                           epx_round_up(most, 16) + weights_bytes(route, plan),
                                           &bytes),
                EPX_ERR_COUNT, "%d tokens with max_row_bytes of %lld are too many bytes",
                plan->shape.max_tokens, (long long)most);
    plan->stage_bytes = bytes > least ? bytes : least;
    return EPX_SUCCESS;
}

static void carve_exchanged(struct arena *arena, const struct epx_route *route,
                            const struct epx_device_plan *plan, size_t offsets[NUM_PARTS])
{
    int64_t ranks = route->comm->size, tokens = plan->shape.max_tokens;

    offsets[PART_TOTALS] = arena->used;
    if (!exchanges_messages(route))
        carve(arena, 2 * ranks * epx_num_counts(plan, route->comm->size), sizeof(uint64_t));
    offsets[PART_COUNTS] = arena->used;
    carve(arena, ranks * epx_num_counts(plan, route->comm->size), sizeof(int32_t));
    offsets[PART_RECORDS] = arena->used;
    carve(arena, ranks, (size_t)plan->record_share);
    offsets[PART_OUTGOING] = arena->used;
    if (exchanges_messages(route))
        carve(arena, ranks, (size_t)plan->record_share);
    offsets[PART_WEIGHTS] = arena->used;
    carve(arena, ranks * tokens * plan->shape.top_k, sizeof(float));
    offsets[PART_STAGE] = arena->used;
    carve(arena, plan->stage_bytes * (exchanges_messages(route) ? 2 : 1), 1);
}

static void carve_home(struct arena *arena, struct epx_device_plan *plan, int messages)
{
    int64_t pairs = (int64_t)plan->shape.max_tokens * plan->shape.top_k;
    int64_t rows = (int64_t)plan->shape.max_tokens * plan->most_rows;

    CARVE(arena, plan->pairs, pairs);
    CARVE(arena, plan->pair_rank, pairs);
    CARVE(arena, plan->view.slots, pairs);
    CARVE(arena, plan->token_num, plan->shape.max_tokens);
    CARVE(arena, plan->token_rank, rows);
    CARVE(arena, plan->token_slot, rows);
    CARVE(arena, plan->token_row, messages ? rows : 0);
    CARVE(arena, plan->nodes.token_row, (int64_t)plan->nodes.num_nodes * plan->shape.max_tokens);
    CARVE(arena, plan->nodes.passed,
          (int64_t)plan->nodes.num_served * plan->shape.max_tokens * plan->nodes.size);
}

/* EPX_Route_get_view(3) promises that a user copies expert_counts, a 0 and expert_ends at once. */
static void carve_groups(struct arena *arena, struct epx_plan_view *view, int num_local)
{
    CARVE(arena, view->expert_counts, 2 * num_local + 1);
    view->expert_ends = view->expert_counts ? view->expert_counts + num_local + 1 : NULL;
}

static void carve_expert(struct arena *arena, struct epx_device_plan *plan, int64_t ranks,
                         int64_t capacity)
{
    CARVE(arena, plan->from, (plan->shape.num_local + 1) * ranks);
    carve_groups(arena, &plan->view, plan->shape.num_local);
    CARVE(arena, plan->view.expert_offsets, plan->shape.num_local + 1);
    CARVE(arena, plan->view.group_sizes, plan->shape.num_local);
    CARVE(arena, plan->view.row_expert_ids,
          plan->shape.rank_major ? capacity * plan->shape.top_k : 0);
    CARVE(arena, plan->view.row_tokens, capacity);
    CARVE(arena, plan->view.row_ranks, capacity);
    CARVE(arena, plan->view.row_choices, plan->shape.rank_major ? 0 : capacity);
}

static void carve_tables(struct arena *arena, struct epx_device_plan *plan,
                         const struct epx_comm *comm)
{
    int64_t ranks = comm->size;

    plan->owner = carve(arena, plan->shape.num_experts, sizeof(*plan->owner));
    plan->totals = carve(arena, NUM_PARTS * ranks, sizeof(char *));
    plan->nodes.relay = carve(arena, epx_device_nodes_words(comm), sizeof(int32_t));
    CARVE(arena, plan->send_rows, ranks);
    CARVE(arena, plan->recv_rows, ranks);
    CARVE(arena, plan->view.rank_counts, ranks);
    CARVE(arena, plan->base, plan->shape.num_experts);
    CARVE(arena, plan->view.num_rows, 1);
    plan->view.arrived_rows = plan->view.num_rows;
    if (plan->shape.rows_per_expert)
        CARVE(arena, plan->view.arrived_rows, 1);
    CARVE(arena, plan->view.required_rows, 1);
    CARVE(arena, plan->view.overflow, 1);
    CARVE(arena, plan->outcome, 1);
    CARVE(arena, plan->bad, 2);
    CARVE(arena, plan->dropped, 1);
}

/* What blocks count. epx_num_counters asks whether there are words. */
static void carve_counters(struct arena *arena, const struct epx_route *route,
                           struct epx_device_plan *plan)
{
    int64_t blocks = route->transport->device->gpu.blocks, ranks = route->comm->size;
    int64_t counters = epx_num_counts(plan, route->comm->size);

    if (exchanges_messages(route)) {
        CARVE(arena, plan->block_counts, blocks * counters);
    } else {
        counters += ranks;
        CARVE(arena, plan->block_words, 2 * EPX_ROUTE_HALVES * blocks * counters);
    }
    CARVE(arena, plan->warp_counts, blocks * 3 * counters);
}

static void carve_all(struct arena *arena, const struct epx_route *route,
                      struct epx_device_plan *plan, size_t offsets[NUM_PARTS])
{
    int64_t ranks = route->comm->size;

    carve_exchanged(arena, route, plan, offsets);
    carve_home(arena, plan, exchanges_messages(route));
    carve_expert(arena, plan, ranks, route->capacity);
    CARVE(arena, plan->row_weights,
          exchanges_messages(route) && !plan->shape.rank_major ? route->capacity : 0);
    carve_tables(arena, plan, route->comm);
    carve_counters(arena, route, plan);
}

static void fix_plan(const struct epx_route *route, struct epx_device_plan *plan)
{
    const EPX_Route_attr *attr = &route->attr;
    int ranks = route->comm->size;

    plan->shape = epx_plan_shape_of(route);
    plan->most_rows = attr->top_k < ranks ? attr->top_k : ranks;
    plan->record_bytes = epx_wire_record_bytes(attr->top_k);
    plan->record_share = plan->shape.max_tokens * plan->record_bytes;
    if (!exchanges_messages(route) &&
        !epx_routes_small(&route->transport->device->gpu, &plan->shape, ranks))
        plan->record_bytes = sizeof(struct epx_wire_record);
    if (exchanges_messages(route)) {
        plan->nodes = epx_device_nodes_of(route->comm, attr->top_k);
        if (plan->nodes.num_nodes)
            plan->record_share +=
                epx_round_up(plan->shape.max_tokens * (int64_t)epx_entry_bytes(attr->top_k), 16);
    }
}

static int find_capacity(struct epx_route *route, const struct epx_device_plan *plan)
{
    EPX_FAIL_IF((int64_t)plan->shape.max_tokens * plan->shape.top_k > INT32_MAX, EPX_ERR_COUNT,
                "%d tokens of %d choices are more than %d pairs", plan->shape.max_tokens,
                plan->shape.top_k, INT32_MAX);
    EPX_FAIL_IF(plan->shape.num_experts > EPX_MOST_DEVICE_EXPERTS, EPX_ERR_COUNT,
                "%d experts, want at most %d on device memory", plan->shape.num_experts,
                EPX_MOST_DEVICE_EXPERTS);
    return epx_route_find_capacity(route, &plan->shape);
}

/* Copies to the device on the library's stream, and waits for that stream alone. */
static int upload(const struct epx_route *route, const void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = route->transport->device->stream;

    EPX_TRY_CUDA(
        cudaMemcpyAsync((void *)(uintptr_t)to, from, bytes, cudaMemcpyHostToDevice, stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(stream));
    return EPX_SUCCESS;
}

static int upload_owners(const struct epx_route *route, const struct epx_device_plan *plan)
{
    int ranks = route->comm->size, rc;
    int32_t *owner = calloc((size_t)plan->shape.num_experts, sizeof(*owner));

    EPX_FAIL_IF(!owner, EPX_ERR_NO_MEM, "no memory for %d experts", plan->shape.num_experts);
    epx_find_owners(owner, plan->shape.num_experts, ranks);
    rc = upload(route, plan->owner, owner, (size_t)plan->shape.num_experts * sizeof(*owner));
    free(owner);
    return rc;
}

/*
 * Where this rank stores `part` for `rank`. Records for another rank are stored where they are sent
 * from, one share for each rank; kernels add the share of this rank, which is taken off here.
 */
static char *address_of(const struct epx_route *route, const struct epx_device_plan *plan,
                        const size_t offsets[NUM_PARTS], int part, int rank)
{
    int64_t me = route->comm->rank;

    if (exchanges_messages(route) && part == PART_RECORDS && rank != me)
        return route->window->own + (int64_t)offsets[PART_OUTGOING] +
               (rank - me) * plan->record_share;
    return route->window->address[rank] + offsets[part];
}

static int upload_nodes(const struct epx_route *route, struct epx_device_plan *plan)
{
    size_t words = (size_t)epx_device_nodes_words(route->comm);
    int32_t *table = words ? calloc(words, sizeof(*table)) : NULL;
    const int32_t *at = plan->nodes.relay;
    int rc;

    if (plan->nodes.num_nodes == 0)
        return EPX_SUCCESS;
    EPX_FAIL_IF(!table, EPX_ERR_NO_MEM, "no memory for %d ranks", route->comm->size);
    epx_device_nodes_fill(route->comm, &plan->nodes, table, at);
    rc = upload(route, at, table, words * sizeof(*table));
    free(table);
    return rc;
}

/* Uploads the tables of where each exchanged part lies on each rank, one behind the other. */
static int upload_tables(const struct epx_route *route, struct epx_device_plan *plan,
                         const size_t offsets[NUM_PARTS])
{
    size_t ranks = (size_t)route->comm->size;
    char **table = calloc(NUM_PARTS * ranks, sizeof(*table));
    int rc;

    EPX_FAIL_IF(!table, EPX_ERR_NO_MEM, "no memory for %zu ranks", ranks);
    for (int part = 0; part < NUM_PARTS; part++)
        for (int r = 0; r < route->comm->size; r++)
            table[(size_t)part * ranks + (size_t)r] = address_of(route, plan, offsets, part, r);
    rc = upload(route, plan->totals, table, NUM_PARTS * ranks * sizeof(*table));
    free(table);
    plan->counts = plan->totals + PART_COUNTS * ranks;
    plan->records = plan->totals + PART_RECORDS * ranks;
    plan->weights = plan->totals + PART_WEIGHTS * ranks;
    plan->stage = plan->totals + PART_STAGE * ranks;
    return rc;
}

/* Finds the stages: the route's own or the communicator's; with messages two, one behind the
 * other. */
static void place_stages(const struct epx_route *route, struct epx_device_plan *plan,
                         const size_t offsets[NUM_PARTS])
{
    const struct epx_device *device = route->transport->device;

    plan->outgoing = route->window->own + offsets[PART_STAGE];
    if (plan->stage_bytes == 0) {
        plan->stage = device->stage;
        plan->stage_bytes = device->gpu.stage_bytes;
        plan->outgoing = device->own_stage;
    }
    plan->outgoing_records = route->window->own + offsets[PART_OUTGOING];
    plan->incoming = plan->outgoing + plan->stage_bytes;
}

static int fill(const struct epx_route *route, struct epx_device_plan *plan,
                const size_t offsets[NUM_PARTS], size_t bytes)
{
    const struct epx_device *device = route->transport->device;
    size_t slots_bytes =
        (size_t)plan->shape.max_tokens * (size_t)plan->shape.top_k * sizeof(*plan->view.slots);

    EPX_TRY_CUDA(cudaMemsetAsync(route->window->own, 0, bytes, device->stream));
    EPX_TRY_CUDA(cudaMemsetAsync(plan->view.slots, 0xff, slots_bytes, device->stream));
    EPX_TRY(upload_owners(route, plan));
    EPX_TRY(upload_nodes(route, plan));
    EPX_TRY(upload_tables(route, plan, offsets));
    place_stages(route, plan, offsets);
    return EPX_SUCCESS;
}

static int fill_window(const struct epx_route *route, struct epx_device_plan *plan,
                       const size_t offsets[NUM_PARTS], size_t bytes)
{
    struct epx_device_scope scope;
    int rc;

    EPX_TRY_CUDA(epx_device_enter(route->transport->device->ordinal, &scope));
    rc = fill(route, plan, offsets, bytes);
    epx_device_leave(&scope);
    return rc;
}

static void plan_free(struct epx_route *route)
{
    if (route->window)
        route->transport->ops->window_free(route->transport->state, route->window);
    route->window = NULL;
    free(route->device_plan);
    route->device_plan = NULL;
}

/* Finds the bytes of the window, before memory is asked for. */
static int measure(struct epx_route *route, struct epx_device_plan *plan, size_t *bytes)
{
    struct arena measured = {NULL, 0};
    size_t offsets[NUM_PARTS];

    EPX_TRY(find_capacity(route, plan));
    EPX_TRY(find_stage(route, plan));
    carve_all(&measured, route, plan, offsets);
    EPX_FAIL_IF(measured.used > PTRDIFF_MAX / 2, EPX_ERR_COUNT,
                "a route of %d tokens of %d choices to %lld rows takes too many bytes",
                plan->shape.max_tokens, plan->shape.top_k, (long long)route->capacity);
    *bytes = measured.used;
    return EPX_SUCCESS;
}

static int create_window(struct epx_route *route, struct epx_device_plan *plan, size_t bytes)
{
    const struct epx_transport *transport = route->transport;
    struct arena arena = {NULL, 0};
    size_t offsets[NUM_PARTS];

    EPX_TRY(transport->ops->window_create(transport->state, bytes, &route->window));
    arena.base = route->window->own;
    carve_all(&arena, route, plan, offsets);
    return epx_comm_agree(route->comm, fill_window(route, plan, offsets, bytes));
}

int epx_device_route_create(struct epx_route *route)
{
    struct epx_comm *comm = route->comm;
    struct epx_device_plan *plan = calloc(1, sizeof(*plan));
    int rc = plan ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for a plan");
    size_t bytes = 0;

    route->plan_free = plan_free;
    route->transport = comm->transport;
    route->device_plan = plan;
    if (rc == EPX_SUCCESS) {
        fix_plan(route, plan);
        rc = measure(route, plan, &bytes);
    }
    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS)
        rc = create_window(route, plan, bytes);
    if (rc == EPX_SUCCESS)
        epx_route_show_view(route, &plan->shape, &plan->view);
    return rc;
}

const struct epx_device_plan *epx_device_plan_of(const struct epx_request *request)
{
    return request->route->device_plan;
}

/* Fills with a pattern what the operation will write: a routing everything that it or its
 * operations make but totals, which may be there; another operation pair weights and the stage. */
int epx_device_route_poison(const struct epx_request *request)
{
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    char *start = request->route->window->own, *end = (char *)plan->pairs;
    struct arena measured = {NULL, 0};
    size_t offsets[NUM_PARTS];

    carve_exchanged(&measured, request->route, plan, offsets);
    start += offsets[epx_verb_routes(request->call.verb) ? PART_COUNTS : PART_WEIGHTS];
    if (epx_verb_routes(request->call.verb))
        end = (char *)(uintptr_t)plan->owner;
    if (start < end)
        EPX_TRY_CUDA(
            cudaMemsetAsync(start, EPX_PATTERN, (size_t)(end - start), request->call.stream));
    return EPX_SUCCESS;
}

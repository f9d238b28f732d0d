/* SPDX-License-Identifier: BSD-3-Clause */
/* layer.c - a route and its routings, whose views are compared with the reference. */
#include "support/layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/space.h"
#include "support/suite.h"

static void make_ids(struct routing *routing, const struct scenario *s, uint64_t seed)
{
    routing->tokens = calloc((size_t)suite_size, sizeof(int));
    routing->ids = calloc((size_t)suite_size, sizeof(*routing->ids));
    for (int r = 0; r < suite_size; r++) {
        int pairs = s->top_k * scenario_tokens(s, seed, r);

        routing->tokens[r] = scenario_tokens(s, seed, r);
        routing->ids[r] = calloc((size_t)pairs + 1, sizeof(int64_t));
        for (int i = 0; i < pairs; i++)
            routing->ids[r][i] = scenario_id(s, seed, r, i);
    }
}

static struct ref *make_ref(const struct scenario *s, const int64_t *recv_capacity,
                            const struct routing *routing)
{
    struct ref_input input = {suite_size,        s->experts,
                              s->top_k,          s->max_tokens,
                              s->alignment,      s->layout,
                              s->overflow,       s->ranks_per_node,
                              recv_capacity,     routing->tokens,
                              routing->ids,      suite_nodes,
                              s->zero_unused,    suite_wide_partials(),
                              suite_by_choice(), s->rows_per_expert,
                              s->distinct};

    return ref_create(&input);
}

static void free_ids(struct routing *routing)
{
    for (int r = 0; routing->ids && r < suite_size; r++)
        free(routing->ids[r]);
    free(routing->ids);
    free(routing->tokens);
}

static void set_capacities(const struct scenario *s, const struct ref *ref, int64_t *recv_capacity)
{
    for (int r = 0; r < suite_size; r++) {
        int64_t worst = ref_worst_capacity(&ref->in, r);

        recv_capacity[r] = (ref->rank[r].required_rows * s->capacity_percent + 99) / 100 + r % 2;
        if (s->sets_capacity && recv_capacity[r] > worst)
            recv_capacity[r] = worst;
    }
}

/* Slabs have the same room on all ranks: the percentage is that of the fullest. */
static void set_rows_per_expert(struct scenario *s, const struct ref *ref)
{
    int64_t most = 0;

    for (int r = 0; r < suite_size; r++) {
        const struct ref_rank *at = &ref->rank[r];

        if (at->num_experts && at->required_rows / at->num_experts > most)
            most = at->required_rows / at->num_experts;
    }
    s->rows_per_expert = (most * s->capacity_percent + 99) / 100;
    s->rows_per_expert += s->rows_per_expert == 0;
}

/* The capacities that the scenario's percentage means, from the needs of its first routing. */
static int64_t *make_capacities(struct scenario *s)
{
    int64_t *recv_capacity = calloc((size_t)suite_size, sizeof(int64_t));
    struct routing first = {0};
    struct ref *ref;

    make_ids(&first, s, s->seed);
    ref = make_ref(s, recv_capacity, &first);
    if (s->capacity_percent && s->layout == EPX_EXPERT_SLAB)
        set_rows_per_expert(s, ref);
    else if (s->capacity_percent)
        set_capacities(s, ref, recv_capacity);
    ref_free(ref);
    free_ids(&first);
    return recv_capacity;
}

/* 0 in the scenario stands for the worst case. */
static int64_t capacity_in_force(const struct layer *layer)
{
    const struct scenario *s = &layer->s;
    struct ref_input input = {.ranks = suite_size,
                              .experts = s->experts,
                              .top_k = s->top_k,
                              .max_tokens = s->max_tokens,
                              .alignment = s->alignment,
                              .layout = s->layout,
                              .rows_per_expert = s->rows_per_expert,
                              .distinct = s->distinct};
    int64_t wanted = layer->recv_capacity[suite_rank];

    return wanted ? wanted : ref_worst_capacity(&input, suite_rank);
}

int layer_open(struct layer *layer, const struct scenario *scenario, EPX_Comm comm)
{
    EPX_Route_attr attr;
    const EPX_Route_view empty = EPX_ROUTE_VIEW_INIT;
    struct scenario *s = &layer->s;

    layer->s = *scenario;
    scenario_complete(s);
    layer->comm = comm;
    layer->route = EPX_ROUTE_NULL;
    layer->stream = EPX_STREAM_NULL;
    layer->view = empty;
    layer->recv_capacity = make_capacities(s);
    attr = scenario_attr(s, layer->recv_capacity[suite_rank]);
    if (!EXPECT_CODE(EPX_Route_create(&attr, comm, &layer->route), EPX_SUCCESS))
        return 0;
    if (s->sets_capacity)
        EXPECT_CODE(EPX_Route_set_capacity(layer->route, capacity_in_force(layer)), EPX_SUCCESS);
    return EXPECT_CODE(EPX_Route_get_view(layer->route, &layer->view), EPX_SUCCESS);
}

void layer_close(struct layer *layer)
{
    EXPECT_CODE(EPX_Route_free(&layer->route), EPX_SUCCESS);
    EXPECT(layer->route == EPX_ROUTE_NULL, "route not nulled");
    free(layer->recv_capacity);
}

static void store_ids(const struct routing *routing, int index_bits)
{
    int64_t pairs = (int64_t)routing->id_buffer.bytes * 8 / index_bits;

    for (int64_t i = 0; i < pairs; i++) {
        int64_t id = routing->ids[suite_rank][i];

        if (index_bits == 64)
            ((int64_t *)routing->id_buffer.data)[i] = id;
        else
            ((int32_t *)routing->id_buffer.data)[i] = (int32_t)id;
    }
}

void routing_prepare(struct routing *routing, struct layer *layer, uint64_t seed)
{
    const struct scenario *s = &layer->s;
    size_t id_bytes = (size_t)s->index_bits / 8;

    memset(routing, 0, sizeof(*routing));
    routing->layer = layer;
    make_ids(routing, s, seed);
    routing->ref = make_ref(s, layer->recv_capacity, routing);
    buffer_create(&routing->id_buffer, (size_t)(routing->tokens[suite_rank] * s->top_k) * id_bytes,
                  id_bytes, MEMORY_MALLOC, layer->comm);
    store_ids(routing, s->index_bits);
    buffer_freeze(&routing->id_buffer);
    if (s->layout != EPX_RANK_MAJOR) {
        size_t num = 2 * (size_t)routing->ref->rank[suite_rank].num_experts + 1;

        buffer_create(&routing->counts, num * sizeof(int32_t), sizeof(int32_t), MEMORY_MALLOC,
                      layer->comm);
    }
}

void routing_refill(struct routing *routing, uint64_t seed)
{
    const struct scenario *s = &routing->layer->s;

    ref_free(routing->ref);
    for (int r = 0; r < suite_size; r++) {
        int used = s->top_k * data_below(seed, 93, (uint64_t)r, routing->tokens[r] + 1);

        for (int i = 0; i < s->top_k * routing->tokens[r]; i++)
            routing->ids[r][i] = i < used ? scenario_id(s, seed, r, i) : -1;
    }
    routing->ref = make_ref(s, routing->layer->recv_capacity, routing);
    store_ids(routing, s->index_bits);
    buffer_freeze(&routing->id_buffer);
}

void routing_keep_counts(const struct routing *routing)
{
    EXPECT_CODE(EPX_Route_set_counts(routing->layer->route, routing->counts.address), EPX_SUCCESS);
}

int routing_call(struct routing *routing)
{
    const struct layer *layer = routing->layer;
    int tokens = routing->tokens[suite_rank];

    routing_keep_counts(routing);
    return EPX_Route_tokens(tokens ? routing->id_buffer.address : NULL, tokens, layer->route,
                            layer->stream, &routing->request);
}

int routing_start(struct routing *routing, struct layer *layer, uint64_t seed)
{
    routing_prepare(routing, layer, seed);
    return routing_call(routing);
}

int routing_code(const struct routing *routing)
{
    if (routing->ref->truncated)
        return EPX_ERR_TRUNCATE;
    return routing->ref->rank[suite_rank].bad_ids ? EPX_ERR_ARG : EPX_SUCCESS;
}

/* An image of a part of the view. */
static void *fetch(const void *from, size_t bytes)
{
    void *image = malloc(bytes + 1);

    space_get(image, from, bytes);
    return image;
}

static int same32(const char *what, const int32_t *shown, const int32_t *want, int64_t n)
{
    int32_t *got = fetch(shown, (size_t)n * sizeof(*got));
    int64_t i = 0;
    int ok;

    while (i < n && got[i] == want[i])
        i++;
    ok = i == n || EXPECT(0, "%s[%lld] is %d, not %d", what, (long long)i, got[i], want[i]);
    free(got);
    return ok;
}

static int same64(const char *what, const int64_t *shown, const int64_t *want, int64_t n)
{
    int64_t *got = fetch(shown, (size_t)n * sizeof(*got));
    int64_t i = 0;
    int ok;

    while (i < n && got[i] == want[i])
        i++;
    ok = i == n || EXPECT(0, "%s[%lld] is %lld, not %lld", what, (long long)i, (long long)got[i],
                          (long long)want[i]);
    free(got);
    return ok;
}

/* In device memory one copy takes expert_counts, a 0 and expert_ends. */
static int check_lies_together(const EPX_Route_view *view, int num_experts)
{
    static const int32_t zero;

    return !space_is_device() || (EXPECT(view->expert_ends == view->expert_counts + num_experts + 1,
                                         "expert_ends is not behind expert_counts") &&
                                  same32("expert_ends - 1", view->expert_ends - 1, &zero, 1));
}

/* The slabs as grouped matrix products take them. */
static int check_groups(const EPX_Route_view *view, const struct ref_rank *at)
{
    int32_t *ends = calloc((size_t)at->num_experts + 1, sizeof(*ends));
    int32_t *sizes = calloc((size_t)at->num_experts + 1, sizeof(*sizes));
    int ok;

    for (int e = 0; e < at->num_experts; e++) {
        ends[e] = (int32_t)at->expert_offsets[e + 1];
        sizes[e] = ends[e] - (int32_t)at->expert_offsets[e];
    }
    ok = same32("expert_ends", view->expert_ends, ends, at->num_experts) &
         same32("group_sizes", view->group_sizes, sizes, at->num_experts) &
         check_lies_together(view, at->num_experts);
    free(ends);
    free(sizes);
    return ok;
}

static int check_rows(const EPX_Route_view *view, const struct ref *ref, const struct ref_rank *at)
{
    int rank_major = ref->in.layout == EPX_RANK_MAJOR, ok = 1;

    ok &= same32("slots", view->slots, at->slots, (int64_t)ref->in.max_tokens * ref->in.top_k);
    ok &= same32("row_tokens", view->row_tokens, at->row_tokens, at->num_rows);
    ok &= same32("row_ranks", view->row_ranks, at->row_ranks, at->num_rows);
    ok &= EXPECT((view->row_expert_ids != NULL) == rank_major, "the layout says otherwise");
    ok &= EXPECT((view->row_choices == NULL) == rank_major, "the layout says otherwise");
    ok &= EXPECT((view->expert_offsets == NULL) == rank_major, "the layout says otherwise");
    ok &= EXPECT((view->expert_ends == NULL) == rank_major, "the layout says otherwise");
    ok &= EXPECT((view->group_sizes == NULL) == rank_major, "the layout says otherwise");
    if (ok && rank_major)
        ok &= same32("row_expert_ids", view->row_expert_ids, at->row_expert_ids,
                     at->num_rows * ref->in.top_k);
    else if (ok)
        ok &= same64("expert_offsets", view->expert_offsets, at->expert_offsets,
                     at->num_experts + 1) &
              same32("row_choices", view->row_choices, at->row_choices, at->num_rows) &
              check_groups(view, at);
    return ok;
}

int routing_check_counts(const struct routing *routing)
{
    const struct ref_rank *at = &routing->ref->rank[suite_rank];
    int32_t *want = routing->counts.expected;

    if (!want)
        return 1;
    for (int e = 0; e < at->num_experts; e++) {
        want[e] = at->expert_counts[e];
        want[at->num_experts + 1 + e] = (int32_t)at->expert_offsets[e + 1];
    }
    want[at->num_experts] = 0;
    return buffer_check(&routing->counts, "counts");
}

int routing_check(const struct routing *routing)
{
    const struct layer *layer = routing->layer;
    const struct ref_rank *at = &routing->ref->rank[suite_rank];
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    int64_t capacity = at->capacity;
    int32_t overflow = routing->ref->overflow;
    int ok = EXPECT_CODE(EPX_Route_get_view(layer->route, &view), EPX_SUCCESS);

    ok = ok && EXPECT(memcmp(&view, &layer->view, sizeof(view)) == 0, "addresses changed");
    ok = ok && EXPECT(view.num_local_experts == at->num_experts &&
                          view.first_local_expert == at->first_expert,
                      "%d local experts from %d", view.num_local_experts, view.first_local_expert);
    if (layer->s.sets_capacity)
        capacity = ref_worst_capacity(&routing->ref->in, suite_rank);
    ok = ok && EXPECT(view.capacity == capacity, "capacity %lld, not %lld",
                      (long long)view.capacity, (long long)capacity);
    ok = ok && buffer_check(&routing->id_buffer, "expert_ids");
    ok = ok && same32("expert_counts", view.expert_counts, at->expert_counts, at->num_experts) &&
         same32("rank_counts", view.rank_counts, at->rank_counts, suite_size) &&
         same64("required_rows", view.required_rows, &at->required_rows, 1) &&
         same64("num_rows", view.num_rows, &at->num_rows, 1) &&
         same32("overflow", view.overflow, &overflow, 1);
    return ok && check_rows(&view, routing->ref, at) && routing_check_counts(routing);
}

int status_check(const MPI_Status *status, int code, int64_t rows)
{
    int elements = -1;

    MPI_Get_elements(status, MPI_BYTE, &elements);
    return EXPECT(status->MPI_ERROR == code, "status has error %d, not %d", status->MPI_ERROR,
                  code) &&
           EXPECT(code || elements == rows, "status has %d rows, not %lld", elements,
                  (long long)rows);
}

static int message_has(EPX_Comm comm, long long value)
{
    char message[EPX_MAX_ERROR_STRING] = "", text[32];
    int length;

    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    snprintf(text, sizeof(text), "%lld", value);
    return EXPECT(strstr(message, text) != NULL, "\"%s\" does not name %s", message, text);
}

static int check_message(const struct routing *routing)
{
    const struct ref_rank *at = &routing->ref->rank[suite_rank];
    EPX_Comm comm = routing->layer->comm;
    int short_ranks = 0, last = 0;

    for (int r = 0; r < suite_size; r++)
        if (routing->ref->rank[r].required_rows > routing->ref->rank[r].capacity) {
            short_ranks++;
            last = r;
        }
    if (routing->ref->truncated && routing->ref->short_expert >= 0)
        return message_has(comm, routing->ref->short_expert) &
               message_has(comm, routing->ref->short_pairs) &
               message_has(comm, routing->ref->in.rows_per_expert);
    if (routing->ref->truncated)
        return short_ranks != 1 || (message_has(comm, last) &
                                    message_has(comm, routing->ref->rank[last].required_rows));
    return message_has(comm, at->bad_token) & message_has(comm, at->bad_choice) &
           message_has(
               comm,
               routing->ids[suite_rank][at->bad_token * routing->ref->in.top_k + at->bad_choice]);
}

int routing_finish(struct routing *routing)
{
    int wanted = routing_code(routing);
    MPI_Status status;
    int ok = EXPECT_CODE(EPX_Wait(&routing->request, &status), wanted);

    ok &= EXPECT(routing->request == EPX_REQUEST_NULL, "request not nulled");
    ok = ok && status_check(&status, wanted, routing->ref->rank[suite_rank].status_rows);
    if (ok && wanted)
        ok = check_message(routing);
    return ok && routing_check(routing);
}

void routing_free(struct routing *routing)
{
    buffer_free(&routing->id_buffer);
    buffer_free(&routing->counts);
    ref_free(routing->ref);
    free_ids(routing);
}

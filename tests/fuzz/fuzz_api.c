/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_api.c - any bytes as arguments of the public functions, on one rank. What the attributes,
 * ids, counts and hints say must come out as an error or as the promised rows; nothing is written
 * outside a buffer, and the communicators stay usable. `make fuzz' links it with libFuzzer;
 * fuzz_replay.c runs it over tests/fuzz/corpus.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "epx.h"
#include "fuzz/fuzz.h"

enum { GUARD_BYTES = 64, GUARD = 0xa5, MOST_BYTES = 1 << 20, MOST_BUFFERS = 20 };
enum { MOST_OBJECT_BYTES = 16 << 20, MOST_MEMORY = 1 << 30, RUNS_BETWEEN_CHECKS = 32 };

/* Tells sanitizers that large allocations fail, as they do by the limits set below. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=64";
}

struct input {
    const uint8_t *bytes;
    size_t left;
};

struct buffer {
    unsigned char *memory;
    size_t bytes;
};

static EPX_Comm comms[2];
static struct buffer buffers[MOST_BUFFERS];
static int num_buffers;

#define REQUIRE(condition) require(condition, #condition, __LINE__)
static void require(int condition, const char *text, int line)
{
    if (condition)
        return;
    fprintf(stderr, "fuzz_api.c:%d: %s does not hold\n", line, text);
    abort();
}

static void take(struct input *input, void *to, size_t bytes)
{
    size_t length = bytes < input->left ? bytes : input->left;

    memset(to, 0, bytes);
    if (length)
        memcpy(to, input->bytes, length);
    input->bytes += length;
    input->left -= length;
}

static int take_byte(struct input *input)
{
    uint8_t byte;

    take(input, &byte, 1);
    return byte;
}

/* Takes a number that is often small, and sometimes any number. */
static int64_t take_number(struct input *input)
{
    int kind = take_byte(input);
    int64_t any;

    if (kind < 192)
        return kind % 48 - 2;
    take(input, &any, sizeof(any));
    if (kind < 224)
        return (int32_t)any;
    return kind < 240 ? any : any & INT32_MAX;
}

/* Makes a buffer between guards; NULL if it would be too large, and now and then. */
static void *make_buffer(int64_t rows, int64_t row_bytes, int given)
{
    struct buffer *buffer = &buffers[num_buffers];
    int64_t bytes;

    if (!given || rows < 0 || row_bytes < 0 || __builtin_mul_overflow(rows, row_bytes, &bytes) ||
        bytes > MOST_BYTES)
        return NULL;
    REQUIRE(num_buffers < MOST_BUFFERS);
    buffer->bytes = (size_t)bytes;
    buffer->memory = malloc(buffer->bytes + 2 * GUARD_BYTES);
    REQUIRE(buffer->memory != NULL);
    memset(buffer->memory, GUARD, buffer->bytes + 2 * GUARD_BYTES);
    num_buffers++;
    return buffer->memory + GUARD_BYTES;
}

static void free_buffers(void)
{
    while (num_buffers) {
        struct buffer *buffer = &buffers[--num_buffers];

        for (int i = 0; i < GUARD_BYTES; i++) {
            REQUIRE(buffer->memory[i] == GUARD);
            REQUIRE(buffer->memory[GUARD_BYTES + buffer->bytes + (size_t)i] == GUARD);
        }
        free(buffer->memory);
    }
}

static int is_code(int code)
{
    return code >= EPX_SUCCESS && code < EPX_ERR_LASTCODE && code != EPX_ERR_INTERN &&
           code != EPX_ERR_TIMEOUT && code != EPX_ERR_MPI;
}

/* Expects a request exactly if the call succeeded; returns the outcome. */
static int outcome(int code, EPX_Request *request)
{
    REQUIRE(is_code(code));
    REQUIRE((*request != EPX_REQUEST_NULL) == (code == EPX_SUCCESS));
    if (code == EPX_SUCCESS)
        code = EPX_Wait(request, MPI_STATUS_IGNORE);
    REQUIRE(is_code(code));
    REQUIRE(*request == EPX_REQUEST_NULL);
    return code;
}

static int datatype_bytes(int datatype)
{
    static const int bytes[] = {0, 1, 1, 1, 2, 2, 4, 8};

    return datatype >= 0 && datatype < 8 ? bytes[datatype] : 0;
}

/* Routes */

static int layout_is_valid(const EPX_Route_attr *a)
{
    if (a->layout == EPX_EXPERT_SLAB)
        return a->alignment == 1 && a->recv_capacity == 0 && a->rows_per_expert >= 1;
    return a->rows_per_expert == 0 &&
           (a->layout == EPX_EXPERT_MAJOR || (a->layout == EPX_RANK_MAJOR && a->alignment == 1));
}

static int attr_is_valid(const EPX_Route_attr *a)
{
    return a->num_experts >= 1 && a->top_k >= 1 && a->top_k <= 64 && a->max_tokens >= 0 &&
           a->alignment >= 1 && (a->alignment & (a->alignment - 1)) == 0 && a->recv_capacity >= 0 &&
           a->recv_capacity <= INT32_MAX && a->max_row_bytes >= 0 &&
           (a->index_bits == 32 || a->index_bits == 64) &&
           (a->overflow == EPX_OVERFLOW_ERROR || a->overflow == EPX_OVERFLOW_DROP) &&
           layout_is_valid(a);
}

static EPX_Route_attr take_attr(struct input *input)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    int shape = take_byte(input), more;

    attr.num_experts = (int)take_number(input);
    attr.top_k = (int)take_number(input);
    attr.max_tokens = (int)take_number(input);
    attr.alignment = shape & 1 ? (int)take_number(input) : 1 << (shape >> 5);
    attr.recv_capacity = shape & 2 ? take_number(input) : 0;
    attr.max_row_bytes = shape & 4 ? take_number(input) : 0;
    attr.index_bits = shape & 8 ? 32 : 64;
    attr.layout = shape & 16 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    more = take_byte(input);
    attr.overflow = more & 1 ? EPX_OVERFLOW_DROP : EPX_OVERFLOW_ERROR;
    attr.zero_unused = more >> 1 & 1;
    if ((more & 12) == 12)
        attr.layout = EPX_EXPERT_SLAB;
    if ((more & 12) == 12 || (more & 48) == 48)
        attr.rows_per_expert = take_number(input);
    if (attr.layout != EPX_EXPERT_MAJOR && !(shape & 1))
        attr.alignment = 1;
    return attr;
}

/* Creates a route from attributes as a later or an earlier version would pass them, or any
 * bytes. */
static int create_odd_route(struct input *input, EPX_Comm comm, EPX_Route *route)
{
    unsigned char bytes[256];
    EPX_Route_attr attr;
    int code;

    take(input, bytes, sizeof(bytes));
    memcpy(&attr, bytes, sizeof(attr));
    if (take_byte(input) & 1)
        attr.size = sizeof(attr);
    else
        attr.size %= sizeof(bytes) + 1;
    memcpy(bytes, &attr.size, sizeof(attr.size));
    code = EPX_Route_create((const EPX_Route_attr *)(const void *)bytes, comm, route);
    REQUIRE(code == EPX_SUCCESS ? attr_is_valid(&attr) : *route == EPX_ROUTE_NULL);
    return code;
}

static void check_row(const EPX_Route_view *view, const EPX_Route_attr *attr, int tokens, int64_t i)
{
    REQUIRE(view->row_tokens[i] >= -1 && view->row_tokens[i] < tokens);
    REQUIRE(view->row_ranks[i] == (view->row_tokens[i] < 0 ? -1 : 0));
    for (int k = 0; view->row_expert_ids && k < attr->top_k; k++)
        REQUIRE(view->row_expert_ids[i * attr->top_k + k] < attr->num_experts);
}

static void check_view(const EPX_Route_view *view, const EPX_Route_attr *attr, int tokens)
{
    int64_t pairs = (int64_t)attr->max_tokens * attr->top_k, sum = 0;

    REQUIRE(*view->num_rows >= 0 && *view->num_rows <= view->capacity);
    REQUIRE(attr->layout == EPX_EXPERT_SLAB || *view->required_rows >= *view->num_rows);
    REQUIRE(attr->layout != EPX_EXPERT_SLAB || *view->num_rows == view->capacity);
    for (int e = 0; e < view->num_local_experts; e++) {
        REQUIRE(view->expert_counts[e] >= 0);
        REQUIRE(!attr->rows_per_expert || view->expert_counts[e] <= attr->rows_per_expert);
        sum += view->expert_counts[e];
    }
    REQUIRE(sum <= (int64_t)tokens * attr->top_k);
    for (int64_t i = 0; i < pairs; i++)
        REQUIRE(view->slots[i] >= -1 && view->slots[i] < view->capacity);
    for (int64_t i = 0; i < *view->num_rows; i++)
        check_row(view, attr, tokens, i);
}

/* Has the routings of the route tell their counts; NULL in the layout that has none. */
static const int32_t *set_counts(const EPX_Route_view *view, const EPX_Route_attr *attr,
                                 EPX_Route route)
{
    int32_t *counts = make_buffer(2 * (int64_t)view->num_local_experts + 1, sizeof(*counts), 1);
    int refused = counts && attr->layout == EPX_RANK_MAJOR;

    REQUIRE(EPX_Route_set_counts(route, counts) == (refused ? EPX_ERR_ARG : EPX_SUCCESS));
    return refused ? NULL : counts;
}

static void check_counts(const EPX_Route_view *view, const int32_t *counts)
{
    const int num = view->num_local_experts;

    for (int e = 0; counts && e < num; e++)
        REQUIRE(counts[e] == view->expert_counts[e] && counts[num + 1 + e] == view->expert_ends[e]);
    REQUIRE(!counts || counts[num] == 0);
}

static int64_t id_at(const void *ids, int bits, int64_t i)
{
    return bits == 32 ? ((const int32_t *)ids)[i] : ((const int64_t *)ids)[i];
}

/* Whether the ids give an error; ids out of range have no slot. */
static int check_ids(const void *ids, const EPX_Route_view *view, const EPX_Route_attr *attr,
                     int tokens)
{
    int bad = 0;

    for (int64_t i = 0; i < (int64_t)tokens * attr->top_k; i++) {
        int64_t id = id_at(ids, attr->index_bits, i);

        bad |= id < -1 || id >= attr->num_experts;
        REQUIRE((id >= 0 && id < attr->num_experts) || view->slots[i] == -1);
    }
    return bad;
}

static void take_ids(struct input *input, void *ids, const EPX_Route_attr *attr, int tokens)
{
    for (int64_t i = 0; ids && i < (int64_t)tokens * attr->top_k; i++) {
        int64_t id = take_number(input);

        if (attr->index_bits == 32)
            ((int32_t *)ids)[i] = (int32_t)id;
        else
            ((int64_t *)ids)[i] = id;
    }
}

/* Checks that every pair with a slot has its token's row there. */
static void check_dispatched(const EPX_Route_view *view, const EPX_Route_attr *attr, int tokens,
                             const char *sent, const char *got, int64_t row_bytes)
{
    for (int64_t i = 0; row_bytes && i < (int64_t)tokens * attr->top_k; i++)
        if (view->slots[i] >= 0)
            REQUIRE(memcmp(got + view->slots[i] * row_bytes, sent + i / attr->top_k * row_bytes,
                           (size_t)row_bytes) == 0);
}

struct rows {
    int count, datatype, tokens;
    int64_t row_bytes;
    char *home, *slots;
    float *weights, *slot_weights;
    int num_biases, is_from; /* is_from: EPX_Combine_from is called */
    const void *biases[EPX_MAX_BIASES + 1];
    const float *token_weights;
};

/* What a combine starts from, of which there may be one too many, or none where some are said to
 * be. */
static void take_biases(struct input *input, const EPX_Route_attr *attr, struct rows *rows)
{
    const int given = take_byte(input);

    rows->is_from = 1;
    rows->num_biases = given % (EPX_MAX_BIASES + 3) - 1;
    for (int b = 0; b < rows->num_biases && !(given & 32); b++)
        rows->biases[b] = make_buffer(rows->tokens, rows->row_bytes, 1);
    if (given & 64)
        rows->token_weights = make_buffer((int64_t)rows->tokens * attr->top_k, sizeof(float), 1);
}

static struct rows take_rows(struct input *input, const EPX_Route_view *view,
                             const EPX_Route_attr *attr, int tokens)
{
    struct rows rows = {0};
    int given = take_byte(input);
    int64_t per_row = attr->layout == EPX_RANK_MAJOR ? attr->top_k : 1;

    rows.count = (int)take_number(input);
    rows.datatype = given & 64 ? (int)take_number(input) : 1 + given % 7;
    rows.tokens = tokens;
    rows.row_bytes = (int64_t)rows.count * datatype_bytes(rows.datatype);
    rows.home = make_buffer(tokens, rows.row_bytes, 1);
    rows.slots = make_buffer(view->capacity, rows.row_bytes, 1);
    if (given & 16)
        rows.weights = make_buffer((int64_t)tokens * attr->top_k, sizeof(float), 1);
    if (given & 32)
        rows.slot_weights = make_buffer(view->capacity * per_row, sizeof(float), 1);
    if (rows.weights)
        take(input, rows.weights, (size_t)tokens * (size_t)attr->top_k * sizeof(float));
    if (rows.home && rows.row_bytes)
        take(input, rows.home, (size_t)tokens * (size_t)rows.row_bytes);
    if (given & 128)
        take_biases(input, attr, &rows);
    return rows;
}

static void run_verbs(struct rows *r, const EPX_Route_view *view, const EPX_Route_attr *attr,
                      EPX_Route route, int routed)
{
    EPX_Request request = EPX_REQUEST_NULL;
    const EPX_Stream none = EPX_STREAM_NULL;
    int code;

    code = outcome(EPX_Dispatch(r->home, r->weights, r->slots, r->slot_weights, r->count,
                                r->datatype, route, none, &request),
                   &request);
    if (routed == EPX_ERR_TRUNCATE)
        REQUIRE(code != EPX_SUCCESS);
    if (code == EPX_SUCCESS)
        check_dispatched(view, attr, r->tokens, r->home, r->slots, r->row_bytes);
    outcome(EPX_Combine(r->slots, r->slot_weights, r->home, r->count, r->datatype, route, none,
                        &request),
            &request);
    if (r->is_from)
        outcome(EPX_Combine_from(r->slots, r->token_weights ? NULL : r->slot_weights, r->num_biases,
                                 r->biases, r->token_weights, r->home, r->count, r->datatype, route,
                                 none, &request),
                &request);
    outcome(EPX_Combine_backward(r->home, NULL, r->slot_weights, r->slots, NULL, r->count,
                                 r->datatype, route, none, &request),
            &request);
    outcome(EPX_Dispatch_backward(r->slots, r->slot_weights, r->home, r->weights, r->count,
                                  r->datatype, route, none, &request),
            &request);
}

/* Makes the routing again, with its dispatch in one call. */
static void run_both(struct rows *r, const void *ids, const EPX_Route_view *view,
                     const EPX_Route_attr *attr, EPX_Route route, int routed)
{
    EPX_Request request = EPX_REQUEST_NULL;
    int code =
        outcome(EPX_Route_dispatch(ids, r->tokens, r->home, r->weights, r->slots, r->slot_weights,
                                   r->count, r->datatype, route, EPX_STREAM_NULL, &request),
                &request);

    REQUIRE(routed == EPX_SUCCESS || code != EPX_SUCCESS);
    if (code != EPX_SUCCESS)
        return;
    check_view(view, attr, r->tokens);
    check_dispatched(view, attr, r->tokens, r->home, r->slots, r->row_bytes);
}

/* A list of fields, with one field more than there may be. */
struct list {
    int num, counts[EPX_MAX_FIELDS + 1], types[EPX_MAX_FIELDS + 1];
    int64_t bytes[EPX_MAX_FIELDS + 1];
    const void *in[EPX_MAX_FIELDS + 1];
    void *out[EPX_MAX_FIELDS + 1];
    int without; /* bits: an array that is NULL */
};

/* A field of its own, or the rows that the other calls move. */
static void take_field(struct input *input, const struct rows *r, int64_t capacity,
                       struct list *list, int f)
{
    int kind = take_byte(input);
    void *in;

    if (kind >= 240) {
        list->counts[f] = r->count;
        list->types[f] = r->datatype;
        list->bytes[f] = r->row_bytes;
        list->in[f] = r->home;
        list->out[f] = r->slots;
        return;
    }
    list->counts[f] = kind & 8 ? (int)take_number(input) : kind % 8;
    list->types[f] = kind & 16 ? (int)take_number(input) : 1 + kind / 32 % 7;
    list->bytes[f] = (int64_t)list->counts[f] * datatype_bytes(list->types[f]);
    list->in[f] = in = make_buffer(r->tokens, list->bytes[f], 1);
    list->out[f] = make_buffer(capacity, list->bytes[f], 1);
    if (in && list->bytes[f])
        take(input, in, (size_t)r->tokens * (size_t)list->bytes[f]);
}

static struct list take_list(struct input *input, const struct rows *r, int64_t capacity)
{
    struct list list = {.num = take_byte(input) % (EPX_MAX_FIELDS + 2)};

    list.without = take_byte(input);
    list.without = list.without < 16 ? list.without : 0;
    for (int f = 0; f < list.num; f++)
        take_field(input, r, capacity, &list, f);
    return list;
}

/* Calls one of the two that take a list; routes by ids, or not if they are NULL. */
static void run_list(const struct list *list, const struct rows *r, const void *ids,
                     const EPX_Route_view *view, const EPX_Route_attr *attr, EPX_Route route)
{
    const void *const *in = list->without & 1 ? NULL : list->in;
    void *const *out = list->without & 2 ? NULL : list->out;
    const int *counts = list->without & 4 ? NULL : list->counts;
    const int *types = list->without & 8 ? NULL : list->types;
    EPX_Request request = EPX_REQUEST_NULL;
    int code;

    if (ids)
        code =
            EPX_Route_dispatch_fields(ids, r->tokens, list->num, in, out, counts, types, r->weights,
                                      r->slot_weights, route, EPX_STREAM_NULL, &request);
    else
        code = EPX_Dispatch_fields(list->num, in, out, counts, types, r->weights, r->slot_weights,
                                   route, EPX_STREAM_NULL, &request);
    if (list->num < 1 || list->num > EPX_MAX_FIELDS || list->without)
        REQUIRE(code == EPX_ERR_ARG);
    if (outcome(code, &request) != EPX_SUCCESS)
        return;
    for (int f = 0; f < list->num; f++)
        check_dispatched(view, attr, r->tokens, list->in[f], list->out[f], list->bytes[f]);
}

static void use_route(struct input *input, const EPX_Route_attr *attr, EPX_Route route)
{
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Request request = EPX_REQUEST_NULL;
    int tokens = (int)take_number(input), code;
    void *ids = make_buffer(tokens, (int64_t)attr->top_k * attr->index_bits / 8, 1);
    const int32_t *counts;
    struct rows rows;

    REQUIRE(EPX_Route_get_view(route, &view) == EPX_SUCCESS);
    if (tokens >= 0 && tokens <= attr->max_tokens)
        take_ids(input, ids, attr, tokens);
    counts = set_counts(&view, attr, route);
    code = EPX_Route_tokens(ids, tokens, route, EPX_STREAM_NULL, &request);
    REQUIRE(code != EPX_SUCCESS || (tokens >= 0 && tokens <= attr->max_tokens));
    if (code != EPX_SUCCESS || (tokens && !ids)) {
        outcome(code, &request);
        return;
    }
    code = outcome(code, &request);
    if (code != EPX_ERR_TRUNCATE) {
        check_view(&view, attr, tokens);
        check_counts(&view, counts);
        REQUIRE((code == EPX_ERR_ARG) == check_ids(ids, &view, attr, tokens));
    }
    rows = take_rows(input, &view, attr, tokens);
    run_verbs(&rows, &view, attr, route, code);
    run_both(&rows, ids, &view, attr, route, code);
    if (code == EPX_SUCCESS) {
        struct list list = take_list(input, &rows, view.capacity);

        run_list(&list, &rows, NULL, &view, attr, route);
        run_list(&list, &rows, ids, &view, attr, route);
    }
}

static void fuzz_route(struct input *input, EPX_Comm comm)
{
    EPX_Route_attr attr = take_attr(input);
    EPX_Route route = EPX_ROUTE_NULL;
    int code = EPX_Route_create(&attr, comm, &route);

    REQUIRE(is_code(code));
    if (!attr_is_valid(&attr))
        REQUIRE(code == EPX_ERR_ARG || code == EPX_ERR_COUNT);
    else
        REQUIRE(code == EPX_SUCCESS || code == EPX_ERR_COUNT || code == EPX_ERR_NO_MEM);
    if (code != EPX_SUCCESS) {
        REQUIRE(route == EPX_ROUTE_NULL);
        return;
    }
    use_route(input, &attr, route);
    REQUIRE(EPX_Route_free(&route) == EPX_SUCCESS);
}

/* Waits into arrays of some length, which the ranks' number may exceed. */
static void fuzz_waits(size_t size, EPX_Comm comm)
{
    EPX_Waits waits = EPX_WAITS_INIT;
    uint64_t *ns = make_buffer(1, (int64_t)sizeof(*ns), 1);

    waits.size = size;
    waits.num_ranks = (int)(size % 3);
    waits.ns = ns;
    REQUIRE((EPX_Comm_get_waits(comm, &waits) == EPX_SUCCESS) == (size >= sizeof(waits)));
    waits = (EPX_Waits)EPX_WAITS_INIT;
    waits.num_ranks = (int)size;
    REQUIRE((EPX_Comm_get_waits(comm, &waits) == EPX_SUCCESS) == ((int)size >= 0));
}

/* A graph of up to 3 edges each way, of this rank to itself or to ranks that there are none of. */
static void fuzz_graph(struct input *input, EPX_Comm comm)
{
    int in = take_byte(input) % 5 - 1, out = take_byte(input) % 5 - 1, lists[6], code, good;
    EPX_Graph graph = EPX_GRAPH_NULL;

    good = in == out && in >= 0;
    for (int i = 0; i < 6; i++)
        lists[i] = take_byte(input) & 128 ? (int)take_number(input) : 0;
    for (int i = 0; good && i < in; i++)
        good = lists[i] == 0 && lists[3 + i] == 0;
    code = EPX_Graph_create_adjacent(comm, in, lists, out, lists + 3, &graph);
    REQUIRE((code == EPX_SUCCESS) == good && (graph != EPX_GRAPH_NULL) == good);
    if (good)
        REQUIRE(EPX_Graph_free(&graph) == EPX_SUCCESS && graph == EPX_GRAPH_NULL);
}

static void fuzz_structs(struct input *input, EPX_Comm comm)
{
    EPX_Route_attr small = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Route_view *view;
    EPX_Stats *stats;
    size_t size;

    small.num_experts = small.max_tokens = 2;
    small.top_k = 1;
    if (create_odd_route(input, comm, &route) == EPX_SUCCESS)
        REQUIRE(EPX_Route_free(&route) == EPX_SUCCESS);
    REQUIRE(EPX_Route_create(&small, comm, &route) == EPX_SUCCESS);
    size = (size_t)take_number(input);
    view = make_buffer(
        1, size > sizeof(*view) && size < MOST_BYTES ? (int64_t)size : (int64_t)sizeof(*view), 1);
    view->size = size;
    REQUIRE((EPX_Route_get_view(route, view) == EPX_SUCCESS) ==
            (size >= offsetof(EPX_Route_view, expert_ends)));
    REQUIRE(EPX_Route_free(&route) == EPX_SUCCESS);
    size = (size_t)take_number(input);
    stats = make_buffer(1, (int64_t)sizeof(*stats), 1);
    stats->size = size;
    REQUIRE((EPX_Comm_get_stats(comm, stats) == EPX_SUCCESS) ==
            (size >= offsetof(EPX_Stats, messages)));
    REQUIRE(stats->size == size);
    fuzz_waits(size, comm);
    fuzz_graph(input, comm);
}

/* Alltoallv */

struct row_of {
    int count, datatype;
};

/* Starts a persistent request twice, if there is one, and frees it; the code of the last. */
static int persistent_outcome(int code, EPX_Request *request)
{
    if (code != EPX_SUCCESS)
        return outcome(code, request);
    for (int i = 0; i < 2 && code == EPX_SUCCESS; i++) {
        code = EPX_Start(request);
        if (code == EPX_SUCCESS)
            code = EPX_Wait(request, MPI_STATUS_IGNORE);
    }
    REQUIRE(EPX_Request_free(request) == EPX_SUCCESS && *request == EPX_REQUEST_NULL);
    return code;
}

/* An EPX_Alltoallv by a graph with one edge, of this rank to itself. */
static int neighbor_outcome(const void *sent, int64_t *counts, void *got, int64_t capacity,
                            struct row_of row, EPX_Comm comm)
{
    const int self = 0;
    EPX_Graph graph;
    EPX_Request request = EPX_REQUEST_NULL;
    int code;

    REQUIRE(EPX_Graph_create_adjacent(comm, 1, &self, 1, &self, &graph) == EPX_SUCCESS);
    code = outcome(EPX_Neighbor_alltoallv(sent, &counts[0], &counts[1], got, &counts[2], &counts[3],
                                          capacity, row.count, row.datatype, graph, EPX_STREAM_NULL,
                                          &request),
                   &request);
    REQUIRE(EPX_Graph_free(&graph) == EPX_SUCCESS);
    return code;
}

static void fuzz_alltoallv(struct input *input, EPX_Comm comm)
{
    int given = take_byte(input), count = (int)take_number(input), code;
    int datatype = given & 128 ? (int)take_number(input) : 1 + given % 7;
    int64_t row_bytes = (int64_t)count * datatype_bytes(datatype), end;
    int64_t sendcount = take_number(input), sdispl = take_number(input);
    int64_t capacity = take_number(input);
    int64_t *counts = make_buffer(4, sizeof(int64_t), 1);
    EPX_Request request = EPX_REQUEST_NULL;
    char *sent, *got = make_buffer(capacity, row_bytes, !(given & 16));

    if (__builtin_add_overflow(sendcount, sdispl, &end) || sendcount < 0 || sdispl < 0)
        end = 0;
    sent = make_buffer(end, row_bytes, !(given & 32));
    counts[0] = sendcount;
    counts[1] = sdispl;
    if (given & 64)
        code = persistent_outcome(EPX_Alltoallv_init(sent, &counts[0], &counts[1], got, &counts[2],
                                                     &counts[3], capacity, count, datatype, comm,
                                                     EPX_STREAM_NULL,
                                                     given & 8 ? EPX_FIXED_COUNTS : 0, &request),
                                  &request);
    else if (given & 8)
        code =
            neighbor_outcome(sent, counts, got, capacity, (struct row_of){count, datatype}, comm);
    else
        code = outcome(EPX_Alltoallv(sent, &counts[0], &counts[1], got, &counts[2], &counts[3],
                                     capacity, count, datatype, comm, EPX_STREAM_NULL, &request),
                       &request);
    if (code != EPX_SUCCESS && code != EPX_ERR_TRUNCATE)
        return;
    REQUIRE(sendcount >= 0 && sdispl >= 0 && count >= 0 && datatype_bytes(datatype));
    REQUIRE(counts[2] == sendcount && counts[3] == 0);
    REQUIRE((code == EPX_ERR_TRUNCATE) == (sendcount > capacity));
    if (code == EPX_SUCCESS && sendcount && row_bytes)
        REQUIRE(memcmp(sent + sdispl * row_bytes, got, (size_t)(sendcount * row_bytes)) == 0);
}

/* Hints */

static void take_string(struct input *input, char *string, size_t size)
{
    size_t length = (size_t)take_byte(input) % size;

    take(input, string, length);
    string[length] = '\0';
}

static const char *take_key(struct input *input, char *any, size_t size)
{
    static const char *const keys[] = {"epx_memory",         "epx_transport",    "epx_timeout_ms",
                                       "epx_max_sms",        "epx_window_bytes", "epx_progress",
                                       "epx_ranks_per_node", "epx_log"};
    int which = take_byte(input) % 9;

    if (which < 8)
        return keys[which];
    take_string(input, any, size);
    return *any ? any : "epx_";
}

static void set_variable(const char *key, const char *value)
{
    char variable[64] = "";

    for (size_t i = 0; key[i] && i + 1 < sizeof(variable); i++)
        variable[i] = (char)(key[i] >= 'a' && key[i] <= 'z' ? key[i] - 'a' + 'A' : key[i]);
    if (strncmp(variable, "EPX_", 4) != 0 || strchr(variable, '='))
        return;
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

static void fuzz_hints(struct input *input)
{
    char any[4][48], values[4][80];
    const char *keys[4];
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Info info, used;
    int code, num = 1 + take_byte(input) % 4, in_info = take_byte(input);

    MPI_Info_create(&info);
    for (int i = 0; i < num; i++) {
        keys[i] = take_key(input, any[i], sizeof(any[i]));
        take_string(input, values[i], sizeof(values[i]));
        if (!(in_info >> i & 1))
            set_variable(keys[i], values[i]);
        else if (*values[i])
            MPI_Info_set(info, keys[i], values[i]);
    }
    code = EPX_Comm_create(MPI_COMM_SELF, info, &comm);
    for (int i = 0; i < num; i++)
        set_variable(keys[i], NULL);
    MPI_Info_free(&info);
    REQUIRE(code == EPX_SUCCESS || code == EPX_ERR_INFO || code == EPX_ERR_UNSUPPORTED ||
            code == EPX_ERR_TRANSPORT || code == EPX_ERR_NO_MEM);
    REQUIRE((code == EPX_SUCCESS) == (comm != EPX_COMM_NULL));
    if (code != EPX_SUCCESS)
        return;
    REQUIRE(EPX_Comm_get_info(comm, &used) == EPX_SUCCESS);
    MPI_Info_free(&used);
    REQUIRE(EPX_Comm_free(&comm) == EPX_SUCCESS);
}

/* A routing and a dispatch whose outcome is known. */
static void check_comm(EPX_Comm comm)
{
    static const uint8_t known[] = {0, 6, 4, 8, 1, 6, 2, 3, 4, 5, 2, 3, 4, 5, 0x15, 8};
    struct input input = {known, sizeof(known)};
    int code;

    EPX_Comm_get_async_error(comm, &code);
    fuzz_route(&input, comm);
    EPX_Comm_get_async_error(comm, &code);
    REQUIRE(code == EPX_SUCCESS);
    free_buffers();
}

static EPX_Comm create_comm(const char *transport)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Info info;

    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_transport", transport);
    MPI_Info_set(info, "epx_window_bytes", "65536");
    REQUIRE(EPX_Comm_create(MPI_COMM_SELF, info, &comm) == EPX_SUCCESS);
    MPI_Info_free(&info);
    return comm;
}

/* Limits memory, so that sizes no machine should be asked for are a shortage here. */
static void limit_memory(void)
{
    struct rlimit limit = {MOST_OBJECT_BYTES, MOST_OBJECT_BYTES};
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");

    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    if (statm && fscanf(statm, "%lu", &pages) == 1 && pages < 1UL << 24) {
        limit.rlim_cur = pages * (unsigned long)sysconf(_SC_PAGESIZE) + MOST_MEMORY;
        limit.rlim_max = RLIM_INFINITY;
        setrlimit(RLIMIT_AS, &limit); /* not under a sanitizer: it maps terabytes */
    }
    if (statm)
        fclose(statm);
}

static void close_all(void)
{
    EPX_Comm_free(&comms[0]);
    EPX_Comm_free(&comms[1]);
    MPI_Finalize();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    int provided;

    (void)argc;
    (void)argv;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    limit_memory();
    comms[0] = create_comm("shm");
    comms[1] = create_comm("mpi");
    atexit(close_all);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct input input = {bytes, size};
    static unsigned runs;
    int what = take_byte(&input);
    EPX_Comm comm = comms[what >> 2 & 1];

    switch (what & 3) {
    case 0: fuzz_route(&input, comm); break;
    case 1: fuzz_structs(&input, comm); break;
    case 2: fuzz_alltoallv(&input, comm); break;
    default: fuzz_hints(&input); break;
    }
    free_buffers();
    if (runs++ % RUNS_BETWEEN_CHECKS == 0)
        check_comm(comm);
    return 0;
}

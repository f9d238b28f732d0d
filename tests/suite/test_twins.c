/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_twins.c - the same calls on two communicators of one process give the same bytes: one over
 * shm, the other over the GPUs if the run is about device memory, else over mpi. Every output is
 * compared as a whole, with what no call may write.
 */
#include <stdlib.h>
#include <string.h>

#include "support/layer.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { SIDES = 2, SCENARIOS = 40, EXCHANGES = 20, PATTERN = 0x5a };

/* A communicator and its memory: host memory, or the memory space of the run. */
struct side {
    EPX_Comm comm;
    EPX_Route route;
    int on_device;
    EPX_Request request;
};

static struct side sides[SIDES];

static void open_sides(void)
{
    sides[0].comm = suite_comm("epx_memory", "system", "epx_transport", "shm", NULL);
    sides[1].on_device = space_is_device();
    if (sides[1].on_device)
        sides[1].comm = suite_comm("epx_memory", "cuda:device", NULL);
    else
        sides[1].comm = suite_comm("epx_memory", "system", "epx_transport", "mpi", NULL);
}

static void close_sides(void)
{
    for (int i = 0; i < SIDES; i++)
        EXPECT_CODE(EPX_Comm_free(&sides[i].comm), EPX_SUCCESS);
    SETTLE();
}

/* An argument: its image before the call (NULL = no argument), and what each side made of it. */
struct argument {
    size_t bytes;
    char *image, *memory[SIDES], *after[SIDES];
};

static struct argument new_argument(size_t bytes)
{
    struct argument argument = {bytes, NULL, {NULL, NULL}, {NULL, NULL}};

    argument.image = malloc(bytes + 1);
    memset(argument.image, PATTERN, bytes);
    return argument;
}

static char *place(const struct side *side, const struct argument *argument)
{
    char *memory;

    if (!argument->image)
        return NULL;
    memory = side->on_device ? space_alloc(argument->bytes) : malloc(argument->bytes + 1);
    if (side->on_device)
        space_put(memory, argument->image, argument->bytes);
    else
        memcpy(memory, argument->image, argument->bytes);
    return memory;
}

static char *fetch(const struct side *side, const void *from, size_t bytes)
{
    char *image = malloc(bytes + 1);

    if (side->on_device && from)
        space_get(image, from, bytes);
    else if (from)
        memcpy(image, from, bytes);
    return image;
}

static void give(struct argument *argument)
{
    for (int i = 0; i < SIDES; i++)
        argument->memory[i] = place(&sides[i], argument);
}

static void take_back(struct argument *argument)
{
    for (int i = 0; i < SIDES; i++) {
        argument->after[i] = fetch(&sides[i], argument->memory[i], argument->bytes);
        if (sides[i].on_device)
            space_free(argument->memory[i]);
        else
            free(argument->memory[i]);
    }
}

static int same_bytes(const char *what, const char *one, const char *other, size_t bytes)
{
    size_t i = 0;

    while (i < bytes && one[i] == other[i])
        i++;
    return EXPECT(i == bytes, "%s: byte %zu of %zu is %02x over %s but %02x over shm", what, i,
                  bytes, (unsigned char)other[i], sides[1].on_device ? suite_transport() : "mpi",
                  (unsigned char)one[i]);
}

/* Compares the two sides of an argument and frees it; an argument that is only read must be as it
 * was. */
static int finish(struct argument *argument, const char *what, int is_read)
{
    int same;

    if (!argument->image)
        return 1;
    take_back(argument);
    same = same_bytes(what, argument->after[0], argument->after[1], argument->bytes);
    if (is_read)
        same &= same_bytes(what, argument->image, argument->after[0], argument->bytes);
    free(argument->image);
    for (int i = 0; i < SIDES; i++)
        free(argument->after[i]);
    return same;
}

/* Waits on both sides, for the same code. */
static void wait_both(const char *what)
{
    MPI_Status status[SIDES];
    int code[SIDES], rows[SIDES];

    for (int i = 0; i < SIDES; i++) {
        code[i] = EPX_Wait(&sides[i].request, &status[i]);
        MPI_Get_elements(&status[i], MPI_BYTE, &rows[i]);
    }
    EXPECT(code[0] == code[1], "%s: code %d over shm, then %d", what, code[0], code[1]);
    EXPECT(code[0] || rows[0] == rows[1], "%s: %d rows over shm, then %d", what, rows[0], rows[1]);
}

static void open_routes(const struct scenario *s, int64_t capacity)
{
    EPX_Route_attr attr = scenario_attr(s, capacity);

    for (int i = 0; i < SIDES; i++)
        EXPECT_CODE(EPX_Route_create(&attr, sides[i].comm, &sides[i].route), EPX_SUCCESS);
    SETTLE();
}

static void close_routes(void)
{
    for (int i = 0; i < SIDES; i++)
        EXPECT_CODE(EPX_Route_free(&sides[i].route), EPX_SUCCESS);
    SETTLE();
}

static EPX_Route_view view_of(const struct side *side)
{
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;

    EXPECT_CODE(EPX_Route_get_view(side->route, &view), EPX_SUCCESS);
    return view;
}

static void same_part(const char *what, const void *one, const void *other, size_t bytes)
{
    char *image = fetch(&sides[0], one, bytes), *image_other = fetch(&sides[1], other, bytes);

    same_bytes(what, image, image_other, bytes);
    free(image);
    free(image_other);
}

#define SAME_PART(member, n)                                                                       \
    same_part(#member, one.member, other.member, (size_t)(n) * sizeof(*one.member))

static void same_views(const struct scenario *s)
{
    EPX_Route_view one = view_of(&sides[0]), other = view_of(&sides[1]);
    size_t local = (size_t)one.num_local_experts, k = (size_t)s->top_k;
    int64_t rows = *one.num_rows;

    EXPECT(one.capacity == other.capacity && one.num_local_experts == other.num_local_experts &&
               one.first_local_expert == other.first_local_expert,
           "views differ");
    SAME_PART(expert_counts, local);
    SAME_PART(rank_counts, suite_size);
    SAME_PART(required_rows, 1);
    SAME_PART(num_rows, 1);
    SAME_PART(slots, (size_t)s->max_tokens * k);
    SAME_PART(row_tokens, rows);
    SAME_PART(row_ranks, rows);
    if (s->layout == EPX_RANK_MAJOR)
        SAME_PART(row_expert_ids, (size_t)rows * k);
    else
        SAME_PART(expert_offsets, local + 1);
}

static struct argument make_ids(const struct scenario *s, int tokens)
{
    size_t pairs = (size_t)tokens * (size_t)s->top_k;
    struct argument ids = new_argument(pairs * (size_t)s->index_bits / 8);

    for (size_t i = 0; i < pairs; i++) {
        int64_t id = scenario_id(s, s->seed, suite_rank, (int)i);

        if (s->index_bits == 64)
            ((int64_t *)(void *)ids.image)[i] = id;
        else
            ((int32_t *)(void *)ids.image)[i] = (int32_t)id;
    }
    return ids;
}

static void route_both(const struct scenario *s, int tokens)
{
    struct argument ids = make_ids(s, tokens);

    give(&ids);
    for (int i = 0; i < SIDES; i++)
        EXPECT_CODE(EPX_Route_tokens(ids.memory[i], tokens, sides[i].route, EPX_STREAM_NULL,
                                     &sides[i].request),
                    EPX_SUCCESS);
    wait_both("route_tokens");
    finish(&ids, "expert_ids", 1);
    same_views(s);
}

static struct argument random_rows(const struct scenario *s, enum verb verb, int which,
                                   int64_t rows)
{
    struct data data = {data_hash(s->seed, (uint64_t)verb, (uint64_t)which), s->datatype, s->count,
                        verb == DISPATCH ? DATA_BYTES : DATA_NUMBERS};
    size_t bytes = data_row_bytes(&data);
    struct argument argument = new_argument((size_t)rows * bytes);

    for (int64_t row = 0; row < rows; row++)
        data_row(&data, suite_rank, row, argument.image + (size_t)row * bytes);
    return argument;
}

static struct argument random_weights(const struct scenario *s, enum verb verb, int64_t n)
{
    struct argument argument = new_argument((size_t)n * sizeof(float));

    for (int64_t i = 0; i < n; i++)
        ((float *)(void *)argument.image)[i] = data_weight(s->seed + verb, suite_rank, i);
    return argument;
}

struct arguments {
    struct argument in, in2, weights, out, out_weights;
};

static int call(const struct scenario *s, enum verb verb, const struct arguments *a, int i)
{
    const float *weights = (const float *)(void *)a->weights.memory[i];
    float *out_weights = (float *)(void *)a->out_weights.memory[i];
    const char *in = a->in.memory[i];
    struct side *side = &sides[i];

    switch (verb) {
    case DISPATCH:
        return EPX_Dispatch(in, weights, a->out.memory[i], out_weights, s->count, s->datatype,
                            side->route, EPX_STREAM_NULL, &side->request);
    case COMBINE:
        return EPX_Combine(in, weights, a->out.memory[i], s->count, s->datatype, side->route,
                           EPX_STREAM_NULL, &side->request);
    case DISPATCH_BACKWARD:
        return EPX_Dispatch_backward(in, weights, a->out.memory[i], out_weights, s->count,
                                     s->datatype, side->route, EPX_STREAM_NULL, &side->request);
    default:
        return EPX_Combine_backward(in, a->in2.memory[i], weights, a->out.memory[i], out_weights,
                                    s->count, s->datatype, side->route, EPX_STREAM_NULL,
                                    &side->request);
    }
}

static int starts_at_home(enum verb verb)
{
    return verb == DISPATCH || verb == COMBINE_BACKWARD;
}

/* Weights: at home one a pair, at the experts one a row, rank-major K a row where they travel. */
static struct arguments make_arguments(const struct scenario *s, enum verb verb, int64_t tokens)
{
    int64_t capacity = view_of(&sides[0]).capacity, pairs = tokens * s->top_k;
    int travel = verb == DISPATCH || verb == DISPATCH_BACKWARD, home = starts_at_home(verb);
    int64_t at_experts = capacity * (travel && s->layout == EPX_RANK_MAJOR ? s->top_k : 1);
    struct arguments a = {.in = random_rows(s, verb, 1, home ? tokens : capacity)};

    a.out = new_argument((size_t)(home ? capacity : tokens) * scenario_row_bytes(s));
    if (verb == COMBINE_BACKWARD)
        a.in2 = random_rows(s, verb, 2, capacity);
    if (!s->weightless)
        a.weights = random_weights(s, verb, verb == DISPATCH ? pairs : at_experts);
    if (verb != COMBINE)
        a.out_weights = new_argument((size_t)(home ? at_experts : pairs) * sizeof(float));
    return a;
}

static void run_both(const struct scenario *s, enum verb verb, int64_t tokens)
{
    static const char *const names[] = {"dispatch", "combine", "dispatch backward",
                                        "combine backward"};
    struct arguments a = make_arguments(s, verb, tokens);
    struct argument *all[] = {&a.in, &a.in2, &a.weights, &a.out, &a.out_weights};

    for (int i = 0; i < 5; i++)
        give(all[i]);
    for (int i = 0; i < SIDES; i++)
        EXPECT_CODE(call(s, verb, &a, i), EPX_SUCCESS);
    wait_both(names[verb]);
    for (int i = 0; i < 5; i++)
        finish(all[i], names[verb], i < 3);
}

/* The room of some scenarios is too small: they fail or drop rows, by policy. */
static int64_t small_room(const struct scenario *s, int rank)
{
    return 1 + data_below(s->seed, 77, (uint64_t)rank, 2 * s->max_tokens * s->top_k);
}

/* Slabs have the same room on all ranks. */
static int64_t bound_room(struct scenario *s)
{
    if (!s->capacity_percent)
        return 0;
    if (s->layout != EPX_EXPERT_SLAB)
        return small_room(s, suite_rank);
    s->rows_per_expert = small_room(s, 0);
    return 0;
}

START_TEST(a_layer_gives_the_same_bytes)
{
    struct scenario s = scenario_random(4000 + (uint64_t)_i);
    int tokens = scenario_tokens(&s, s.seed, suite_rank);

    scenario_complete(&s);
    open_routes(&s, bound_room(&s));
    route_both(&s, tokens);
    for (int v = 0; v < VERBS; v++)
        run_both(&s, (enum verb)v, tokens);
    if (suite_own_complaints())
        scenario_print(&s);
    SETTLE();
    close_routes();
}
END_TEST

static struct argument make_counts(uint64_t seed, int64_t *rows)
{
    struct argument counts = new_argument((size_t)suite_size * sizeof(int64_t));

    for (int r = 0; r < suite_size; r++) {
        ((int64_t *)(void *)counts.image)[r] =
            data_below(seed, (uint64_t)suite_rank, (uint64_t)r, 40);
        *rows += ((int64_t *)(void *)counts.image)[r];
    }
    return counts;
}

static struct argument make_displacements(const struct argument *counts)
{
    struct argument displs = new_argument(counts->bytes);
    int64_t at = 0;

    for (int r = suite_size - 1; r >= 0; r--) {
        ((int64_t *)(void *)displs.image)[r] = at;
        at += ((int64_t *)(void *)counts->image)[r];
    }
    return displs;
}

/* The receive buffers have room for most exchanges, not for all. */
START_TEST(an_exchange_gives_the_same_bytes)
{
    struct scenario s = scenario_random(5000 + (uint64_t)_i);
    int64_t rows = 0, room = 30 * suite_size;
    struct argument counts = make_counts(s.seed, &rows), displs = make_displacements(&counts);
    struct argument in = random_rows(&s, DISPATCH, 3, rows);
    struct argument out = new_argument((size_t)room * scenario_row_bytes(&s));
    struct argument recvcounts = new_argument(counts.bytes), rdispls = new_argument(counts.bytes);
    struct argument *all[] = {&in, &counts, &displs, &out, &recvcounts, &rdispls};

    for (int i = 0; i < 6; i++)
        give(all[i]);
    for (int i = 0; i < SIDES; i++)
        EXPECT_CODE(EPX_Alltoallv(in.memory[i], (int64_t *)(void *)counts.memory[i],
                                  (int64_t *)(void *)displs.memory[i], out.memory[i],
                                  (int64_t *)(void *)recvcounts.memory[i],
                                  (int64_t *)(void *)rdispls.memory[i], room, s.count, s.datatype,
                                  sides[i].comm, EPX_STREAM_NULL, &sides[i].request),
                    EPX_SUCCESS);
    wait_both("alltoallv");
    for (int i = 0; i < 6; i++)
        finish(all[i], "alltoallv", i < 3);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("twins");
    TCase *tcase = tcase_create("twins");

    suite_add_fixture(tcase, open_sides, close_sides);
    tcase_add_loop_test(tcase, a_layer_gives_the_same_bytes, 0, SCENARIOS);
    tcase_add_loop_test(tcase, an_exchange_gives_the_same_bytes, 0, EXCHANGES);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

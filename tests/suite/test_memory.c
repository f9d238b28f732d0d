/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_memory.c - what is allocated is what the section COST of epx_memory(7) says. The formulas
 * here are those of that section, with the same letters. On device memory the control words of a
 * communicator are compared alone, which wants no GPU.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/control_words.h"
#include "suite/allocation.h"
#include "support/exchange.h"
#include "support/operation.h"
#include "support/suite.h"

enum { PAGE = 4096, REQUEST_BYTES = 1024 };

/* The formulas, spelled as in the manual. */
/* clang-format off */
#define COMM_SHARED R*max(16384, W/R) + 1984*R
#define COMM_STAGES 2*max(W, 16384*R)
#define COMM_CELLS 8192*R
#define COMM_AREA max(W, 16384*R) + 16*R + 128
#define ROUTE_PRIVATE 12*T*K + 12*T + 20*U + 16*E + 20*L + 8*C
#define ROUTE_RANK_MAJOR 4*K*C
#define ROUTE_BY_EXPERT 8*C
#define ROUTE_EXCHANGED 4*R*(E + R + 2) + R*T*B + 4*T*K
#define ROUTE_RECORDS U*B
#define ROUTE_BY_NODE 4*N*T + 4*T + 8*U + 4*N*R + 4*R*T + H*T*G
#define DEVICE_CONTROL 8832 + 65960*R + 32*R*R + 4*R*P
/* clang-format on */
#define TEXT_OF(formula) #formula
#define TEXT(formula) TEXT_OF(formula)

static EPX_Comm comm;
static int64_t R;

static int on_shm(void)
{
    return strcmp(suite_transport(), "shm") == 0;
}

/* Whether the transport is ucx: its stages come from UCX, whose allocations are not counted. */
static int on_ucx(void)
{
    return strcmp(suite_transport(), "ucx") == 0;
}

static int on_hier(void)
{
    return strchr(suite_transport(), '+') != NULL;
}

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int manual_says(const char *formula)
{
    FILE *manual = fopen(EPX_MANUAL, "r");
    char line[512];
    int found = 0;

    while (manual && !found && fgets(line, sizeof(line), manual))
        found = strstr(line, formula) != NULL;
    if (manual)
        fclose(manual);
    return found;
}

START_TEST(the_formulas_are_those_of_the_manual)
{
    static const char *const formulas[] = {
        TEXT(COMM_SHARED),   TEXT(COMM_STAGES),      TEXT(COMM_CELLS),      TEXT(COMM_AREA),
        TEXT(ROUTE_PRIVATE), TEXT(ROUTE_RANK_MAJOR), TEXT(ROUTE_BY_EXPERT), TEXT(ROUTE_EXCHANGED),
        TEXT(ROUTE_RECORDS), TEXT(ROUTE_BY_NODE),    TEXT(DEVICE_CONTROL)};

    for (int i = 0; i < (int)(sizeof(formulas) / sizeof(formulas[0])); i++)
        EXPECT(manual_says(formulas[i]), "no %s in " EPX_MANUAL, formulas[i]);
    SETTLE();
}
END_TEST

/* Expects the bytes of the formula, or more by at most the slack that the manual page allows. */
static void expect_bytes(const char *what, int64_t got, int64_t formula, int64_t slack)
{
    EXPECT(got >= formula && got <= formula + slack, "%s: %lld bytes, not %lld to %lld", what,
           (long long)got, (long long)formula, (long long)(formula + slack));
}

START_TEST(control_words_take_what_the_manual_says)
{
    int64_t P = min(524288, 1048576 / R) / 16 * 16;

    expect_bytes("control words", (int64_t)epx_control_bytes((int32_t)R), DEVICE_CONTROL, 0);
    SETTLE();
}
END_TEST

static EPX_Comm create(const char *window_bytes)
{
    return suite_comm("epx_window_bytes", window_bytes, "epx_transport", suite_transport(), NULL);
}

static const int64_t window_bytes[] = {65536, 1 << 20, 4194304};

START_TEST(a_communicator_takes_what_the_manual_says)
{
    int64_t W = window_bytes[_i];
    int64_t S = on_shm() ? COMM_SHARED : on_hier() ? COMM_AREA : 0;
    int64_t P = on_shm() || on_ucx() ? 0 : COMM_STAGES;
    struct allocation before = allocation_now(), since;
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)W);
    comm = create(text);
    since = allocation_since(&before);
    expect_bytes("private", since.live_bytes, P, 6144 + 1536 * R);
    expect_bytes("shared", since.shared_bytes, S, S ? 3 * PAGE : 0);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    since = allocation_since(&before);
    EXPECT(since.live_blocks == 0, "%lld blocks left", (long long)since.live_blocks);
    EXPECT(since.mapped_bytes == 0, "%lld bytes left mapped", (long long)since.mapped_bytes);
    SETTLE();
}
END_TEST

static void open_comm(void)
{
    comm = create("65536");
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

struct shape {
    int experts, top_k, max_tokens, alignment;
    int64_t capacity; /* of the rank; of each expert in the slab layout */
    EPX_Layout layout;
};

static const struct shape shapes[] = {
    {1, 1, 1, 1, 0, EPX_EXPERT_MAJOR},       {64, 8, 512, 1, 0, EPX_EXPERT_MAJOR},
    {64, 8, 512, 1, 0, EPX_RANK_MAJOR},      {7, 3, 1000, 16, 5000, EPX_EXPERT_MAJOR},
    {7, 3, 1000, 1, 5000, EPX_RANK_MAJOR},   {3000, 2, 10, 1, 0, EPX_EXPERT_MAJOR},
    {16, 64, 300, 128, 0, EPX_EXPERT_MAJOR}, {16, 64, 300, 1, 77, EPX_RANK_MAJOR},
    {5, 2, 1, 1, 0, EPX_EXPERT_MAJOR},       {16, 4, 300, 1, 120, EPX_EXPERT_SLAB},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static EPX_Route create_route(const struct shape *shape)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;

    attr.num_experts = shape->experts;
    attr.top_k = shape->top_k;
    attr.max_tokens = shape->max_tokens;
    attr.alignment = shape->alignment;
    attr.layout = shape->layout;
    if (shape->layout == EPX_EXPERT_SLAB)
        attr.rows_per_expert = shape->capacity;
    else
        attr.recv_capacity = shape->capacity;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &route), EPX_SUCCESS);
    SETTLE();
    return route;
}

/* Ranks of the same node with a lower number, and all of them. */
static int64_t place_in_node(int rank, int64_t *size)
{
    int64_t place = 0;

    *size = 0;
    for (int r = 0; r < suite_size; r++) {
        place += r < rank && suite_nodes[r] == suite_nodes[rank];
        *size += suite_nodes[r] == suite_nodes[rank];
    }
    return place;
}

/* Ranks of other nodes whose place in their node is this rank's, modulo the size of its node. */
static int64_t homes_served(void)
{
    int64_t size, other, homes = 0, mine = place_in_node(suite_rank, &size);

    for (int r = 0; r < suite_size; r++)
        homes +=
            suite_nodes[r] != suite_nodes[suite_rank] && place_in_node(r, &other) % size == mine;
    return homes;
}

static int64_t num_nodes(void)
{
    int64_t most = 0;

    for (int r = 0; r < suite_size; r++)
        most = max(most, suite_nodes[r]);
    return most + 1;
}

START_TEST(a_route_takes_what_the_manual_says)
{
    const struct shape *shape = &shapes[_i];
    int rank_major = shape->layout == EPX_RANK_MAJOR;
    int64_t E = shape->experts, K = shape->top_k, T = shape->max_tokens;
    int64_t U = T * min(K, R), B = rank_major ? 16 + 5 * K : 12 + 5 * K;
    int64_t N = num_nodes(), H = homes_served(), G = (4 + 2 * K + 3) / 4 * 4;
    struct allocation before = allocation_now(), since;
    EPX_Route route = create_route(shape);
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    int64_t C, L, X, P;

    EPX_Route_get_view(route, &view);
    since = allocation_since(&before);
    C = view.capacity;
    L = view.num_local_experts;
    B = (B + 3) / 4 * 4;
    X = ROUTE_EXCHANGED;
    P = ROUTE_PRIVATE;
    P += rank_major ? ROUTE_RANK_MAJOR : ROUTE_BY_EXPERT;
    P += on_shm() ? 0 : X + ROUTE_RECORDS;
    P += on_hier() ? ROUTE_BY_NODE : 0;
    expect_bytes("private", since.live_bytes, P, 4096 + 128 * R);
    expect_bytes("shared", since.shared_bytes, on_shm() ? X : 0, on_shm() ? 2 * PAGE : 0);
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    since = allocation_since(&before);
    EXPECT(since.live_blocks == 0, "%lld blocks left", (long long)since.live_blocks);
    EXPECT(since.mapped_bytes == 0, "%lld bytes left mapped", (long long)since.mapped_bytes);
    SETTLE();
}
END_TEST

START_TEST(memory_for_others_to_store_into_takes_its_bytes)
{
    static const int64_t sizes[] = {0, 1, 4096, 100000};
    struct allocation before = allocation_now(), since;
    int64_t bytes = sizes[_i];
    void *memory;

    EXPECT_CODE(EPX_Alloc_mem((MPI_Aint)bytes, comm, &memory), EPX_SUCCESS);
    since = allocation_since(&before);
    expect_bytes("private", since.live_bytes, on_shm() ? 0 : bytes, 512 + 8 * R);
    expect_bytes("shared", since.shared_bytes, on_shm() ? bytes : 0, on_shm() ? PAGE : 0);
    EXPECT_CODE(EPX_Free_mem(memory, comm), EPX_SUCCESS);
    since = allocation_since(&before);
    EXPECT(since.live_blocks == 0, "%lld blocks left", (long long)since.live_blocks);
    SETTLE();
}
END_TEST

enum { IN_FLIGHT = 4 };

/* Runs every verb with its buffers made; counts what the calls from start to end allocate. */
static struct allocation run_verbs(struct layer *layer, const void *ids)
{
    EPX_Request requests[2 + IN_FLIGHT];
    struct allocation before = allocation_now();
    const struct scenario *s = &layer->s;
    static float rows[4096], sums[4096], home[4096], expert[4096];
    EPX_Stream stream = EPX_STREAM_NULL;
    int n = s->count, type = EPX_FLOAT32, T = s->max_tokens;

    memset(rows, 0, sizeof(rows));
    EPX_Route_tokens(ids, T, layer->route, stream, &requests[0]);
    EPX_Dispatch(home, sums, rows, expert, n, type, layer->route, stream, &requests[1]);
    EPX_Waitall(2, requests, MPI_STATUSES_IGNORE);
    EPX_Combine(rows, expert, sums, n, type, layer->route, stream, &requests[0]);
    EXPECT_CODE(EPX_Wait(&requests[0], MPI_STATUS_IGNORE), EPX_SUCCESS);
    EPX_Combine_backward(home, rows, NULL, sums, expert, n, type, layer->route, stream,
                         &requests[0]);
    EXPECT_CODE(EPX_Wait(&requests[0], MPI_STATUS_IGNORE), EPX_SUCCESS);
    EPX_Dispatch_backward(rows, expert, sums, NULL, n, type, layer->route, stream, &requests[0]);
    EXPECT_CODE(EPX_Wait(&requests[0], MPI_STATUS_IGNORE), EPX_SUCCESS);
    for (int i = 0; i < IN_FLIGHT; i++)
        EPX_Combine(rows, NULL, sums, n, type, layer->route, stream, &requests[i]);
    EPX_Waitall(IN_FLIGHT, requests, MPI_STATUSES_IGNORE);
    return allocation_since(&before);
}

static struct allocation run_exchange(void)
{
    static int64_t counts[64], displs[64], recv_counts[64], recv_displs[64];
    static char send[64], recv[64];
    struct allocation before = allocation_now();
    EPX_Request request;

    for (int r = 0; r < R; r++) {
        counts[r] = 1;
        displs[r] = r;
    }
    EXPECT_CODE(EPX_Alltoallv(send, counts, displs, recv, recv_counts, recv_displs, R, 1, EPX_BYTE,
                              comm, EPX_STREAM_NULL, &request),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    return allocation_since(&before);
}

START_TEST(operations_allocate_their_requests_once)
{
    struct scenario s = {.seed = 3, .experts = 4, .top_k = 2, .max_tokens = 8, .count = 16};
    static const int64_t ids[16];
    struct allocation since;
    struct layer layer;

    s.tokens = TOKENS_FULL;
    layer_open(&layer, &s, comm);
    SETTLE();
    since = run_verbs(&layer, ids);
    EXPECT(since.calls <= IN_FLIGHT, "%lld allocations for %d requests", (long long)since.calls,
           IN_FLIGHT);
    EXPECT(since.live_bytes <= IN_FLIGHT * REQUEST_BYTES, "%lld bytes for %d requests",
           (long long)since.live_bytes, IN_FLIGHT);
    for (int i = 0; i < 20; i++) {
        since = run_verbs(&layer, ids);
        EXPECT(since.calls == 0, "%lld allocations", (long long)since.calls);
        since = run_exchange();
        EXPECT(since.calls == 0, "%lld allocations of alltoallv", (long long)since.calls);
    }
    SETTLE();
    layer_close(&layer);
    SETTLE();
}
END_TEST

/* Fills stages, with ranks that have more rows than others. */
START_TEST(rows_stay_in_their_stages)
{
    struct scenario s = {.seed = 40 + (uint64_t)_i, .top_k = 2, .max_tokens = 48, .count = 1024};
    EPX_Comm small = create("65536");

    s.experts = 2 * R;
    s.tokens = TOKENS_SOME_RANKS;
    for (enum verb verb = DISPATCH; verb < VERBS; verb++) {
        layer_run(&s, small, verb, 2);
        EXPECT(allocation_is_intact(), "verb %d wrote past the end of a block", (int)verb);
    }
    EXPECT_CODE(EPX_Comm_free(&small), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *alone = tcase_create("communicator"), *with = tcase_create("with a communicator");

    R = suite_size;
    tcase_add_test(alone, the_formulas_are_those_of_the_manual);
    tcase_add_test(alone, control_words_take_what_the_manual_says);
    tcase_add_loop_test(alone, a_communicator_takes_what_the_manual_says, 0, 3);
    tcase_add_loop_test(alone, rows_stay_in_their_stages, 0, 8);
    tcase_add_checked_fixture(with, open_comm, close_comm);
    tcase_add_loop_test(with, a_route_takes_what_the_manual_says, 0, SHAPES);
    tcase_add_loop_test(with, memory_for_others_to_store_into_takes_its_bytes, 0, 4);
    tcase_add_test(with, operations_allocate_their_requests_once);
    suite_add_tcase(suite, alone);
    suite_add_tcase(suite, with);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* test_neighbor.c - every byte of what EPX_Neighbor_alltoallv does, over graphs of any shape, once
 * and again and again. */
#include <string.h>

#include "exchange/neighbors.h"
#include "support/exchange.h"
#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { STARTS = 5, SEVERAL = 4 };

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void close_comm(void)
{
    suite_free_comm(&comm);
}

static struct neighbors open_graph(enum graph_shape shape, uint64_t seed)
{
    struct neighbors n = {shape, seed, EPX_GRAPH_NULL};

    EXPECT_CODE(neighbors_open(&n, comm), EPX_SUCCESS);
    SETTLE();
    return n;
}

static struct exchange exchange_on(struct neighbors *n, uint64_t seed, EPX_Datatype datatype,
                                   int count)
{
    struct exchange x = {.comm = comm, .neighbors = n, .data = {seed, datatype, count, 0}};

    x.most_rows = 8;
    x.memory = (enum memory)(seed % 3);
    return x;
}

static void run(struct exchange *x)
{
    EXPECT_CODE(exchange_start(x), EPX_SUCCESS);
    exchange_finish(x);
    SETTLE();
    exchange_free(x);
    SETTLE();
}

START_TEST(rows_reach_the_neighbours)
{
    struct neighbors n = open_graph((enum graph_shape)_i, 300 + (uint64_t)_i);

    for (int i = 0; i < 7; i++) {
        struct exchange x = exchange_on(&n, 310 + (uint64_t)i, EPX_BYTE + i, 19);

        x.gap = i % 2;
        run(&x);
    }
    neighbors_close(&n);
}
END_TEST

static const int lengths[] = {0, 1, 4096, 65537, 300001};

START_TEST(rows_of_any_length_arrive)
{
    struct neighbors n = open_graph((enum graph_shape)(_i % NUM_SHAPES), 320 + (uint64_t)_i);
    struct exchange x = exchange_on(&n, 330 + (uint64_t)_i, EPX_BYTE, lengths[_i % 5]);

    x.most_rows = n.shape == SHAPE_MANY ? 1 : 2;
    run(&x);
    neighbors_close(&n);
}
END_TEST

static const struct {
    enum graph_shape shape;
    int64_t each;
} no_bytes[] = {{SHAPE_RING, INT64_MAX / 2}, {SHAPE_RING, INT64_MAX}, {SHAPE_MANY, INT64_MAX}};

/* Only words move; displacements end at the largest number. */
START_TEST(rows_of_no_bytes_are_told)
{
    struct neighbors n = open_graph(no_bytes[_i].shape, 488 + (uint64_t)_i);
    struct exchange x = exchange_on(&n, 489, EPX_FLOAT64, 0);
    const struct buffer *arrays[] = {&x.sendcounts, &x.recvcounts, &x.rdispls};
    const int64_t each = no_bytes[_i].each;

    x.most_rows = 0;
    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS); /* which makes the arrays, of no rows */
    exchange_finish(&x);
    SETTLE();
    for (int i = 0; i < neighbors_list(&n, suite_rank, 0, NULL); i++)
        ((int64_t *)x.sendcounts.data)[i] = each;
    for (int i = 0; i < neighbors_list(&n, suite_rank, 1, NULL); i++) {
        ((int64_t *)x.recvcounts.expected)[i] = each;
        ((int64_t *)x.rdispls.expected)[i] = i > INT64_MAX / each ? INT64_MAX : i * each;
    }
    buffer_freeze(&x.sendcounts);
    EXPECT_CODE(EPX_Neighbor_alltoallv(NULL, x.sendcounts.address, x.sdispls.address, NULL,
                                       x.recvcounts.address, x.rdispls.address, INT64_MAX, 0,
                                       EPX_FLOAT64, n.graph, EPX_STREAM_NULL, &x.request),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&x.request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    for (int i = 0; i < 3; i++)
        buffer_check(arrays[i], "neighbours of no bytes");
    SETTLE();
    exchange_free(&x);
    neighbors_close(&n);
}
END_TEST

START_TEST(several_graphs_are_in_flight)
{
    struct neighbors graphs[SEVERAL];
    struct exchange x[SEVERAL];

    for (int i = 0; i < SEVERAL; i++)
        graphs[i] = open_graph((enum graph_shape)((_i + i) % NUM_SHAPES), 340 + (uint64_t)(_i + i));
    for (int i = 0; i < SEVERAL; i++)
        x[i] = exchange_on(&graphs[(i * i) % SEVERAL], 350 + (uint64_t)i, EPX_FLOAT16, 700 * i + 1);
    for (int i = 0; i < SEVERAL; i++)
        EXPECT_CODE(exchange_start(&x[i]), EPX_SUCCESS);
    for (int i = SEVERAL - 1; i >= 0; i--)
        exchange_finish(&x[i]);
    SETTLE();
    for (int i = 0; i < SEVERAL; i++) {
        exchange_free(&x[i]);
        neighbors_close(&graphs[i]);
    }
}
END_TEST

/* What all ranks take part in, and graphs whose ranks are ahead of others, in turn. */
START_TEST(other_operations_run_between)
{
    struct neighbors few = open_graph(SHAPE_FEW, 360), odd = open_graph(SHAPE_ODD_ALONE, 361);

    for (int i = 0; i < 3; i++) {
        struct exchange first = exchange_on(&few, 362 + (uint64_t)i, EPX_FLOAT32, 900);
        struct exchange all = exchange_on(NULL, 363 + (uint64_t)i, EPX_FLOAT32, 1200 * i + 5);
        struct exchange second = exchange_on(&odd, 364 + (uint64_t)i, EPX_FLOAT32, 40);

        EXPECT_CODE(exchange_start(&first), EPX_SUCCESS);
        EXPECT_CODE(exchange_start(&all), EPX_SUCCESS);
        EXPECT_CODE(exchange_start(&second), EPX_SUCCESS);
        layer_works(comm);
        exchange_finish(&second);
        exchange_finish(&first);
        exchange_finish(&all);
        SETTLE();
        exchange_free(&first);
        exchange_free(&all);
        exchange_free(&second);
    }
    neighbors_close(&few);
    neighbors_close(&odd);
}
END_TEST

/* Some ranks are many operations ahead of others. */
START_TEST(ranks_without_neighbours_do_not_wait)
{
    struct neighbors n = open_graph(SHAPE_ODD_ALONE, 370);
    struct exchange x[8];

    if (suite_rank % 2 == 0)
        suite_sleep_ms(300);
    for (int i = 0; i < 8; i++) {
        x[i] = exchange_on(&n, 372 + 3 * (uint64_t)i, EPX_BYTE, 5000);
        x[i].memory = MEMORY_MALLOC;
        EXPECT_CODE(exchange_start(&x[i]), EPX_SUCCESS);
        if (suite_rank % 2) {
            int flag = 0;

            EXPECT_CODE(EPX_Test(&x[i].request, &flag, MPI_STATUS_IGNORE), EPX_SUCCESS);
            if (!space_is_device())
                EXPECT(flag, "a rank without neighbours waits in operation %d", i);
        }
    }
    for (int i = 0; i < 8; i++) {
        EXPECT_CODE(EPX_Wait(&x[i].request, MPI_STATUS_IGNORE), EPX_SUCCESS);
        exchange_check(&x[i]);
    }
    SETTLE();
    for (int i = 0; i < 8; i++)
        exchange_free(&x[i]);
    neighbors_close(&n);
}
END_TEST

START_TEST(a_rank_without_room_harms_nobody)
{
    struct neighbors n = open_graph((enum graph_shape)(_i % 3), 380 + (uint64_t)_i);
    struct exchange x = exchange_on(&n, 390 + (uint64_t)_i, EPX_FLOAT32, _i / 3 ? 3000 : 10);

    x.short_rows = 3;
    run(&x);
    layer_works(comm);
    neighbors_close(&n);
}
END_TEST

static void start(struct exchange *x)
{
    if (EXPECT_CODE(EPX_Start(&x->request), EPX_SUCCESS))
        exchange_wait(x);
    SETTLE();
}

static void end(struct exchange *x)
{
    EXPECT_CODE(EPX_Request_free(&x->request), EPX_SUCCESS);
    SETTLE();
    exchange_free(x);
    SETTLE();
}

/* Fixed on no rank, on all, or on even ranks alone. */
static void run_persistent(struct exchange *x, int fixed)
{
    x->count_seed = fixed ? x->data.seed : 0;
    EXPECT_CODE(
        exchange_init(x, fixed == 1 || (fixed && suite_rank % 2 == 0) ? EPX_FIXED_COUNTS : 0),
        EPX_SUCCESS);
    SETTLE();
    space_wait_stream(x->stream);
    for (int i = 0; i < STARTS; i++) {
        if (i && fixed)
            exchange_fill_rows(x);
        else if (i)
            exchange_fill(x);
        start(x);
        x->data.seed += 1000;
    }
    end(x);
}

START_TEST(it_is_started_again_and_again)
{
    struct neighbors n = open_graph((enum graph_shape)_i, 400 + (uint64_t)_i);

    for (int fixed = 0; fixed < 3; fixed++)
        for (int i = 0; i < 3; i++) {
            struct exchange x = exchange_on(&n, 410 + (uint64_t)i, EPX_FLOAT32, 40 * i * i * i + 3);

            run_persistent(&x, fixed);
        }
    neighbors_close(&n);
}
END_TEST

START_TEST(two_persistent_ones_take_turns)
{
    struct neighbors n = open_graph(SHAPE_RING, 420);
    struct exchange x = exchange_on(&n, 421, EPX_FLOAT32, 3000);
    struct exchange y = exchange_on(&n, 422, EPX_BYTE, 20000);
    EPX_Request both[2];

    x.count_seed = x.data.seed;
    y.count_seed = y.data.seed;
    EXPECT_CODE(exchange_init(&x, EPX_FIXED_COUNTS), EPX_SUCCESS);
    EXPECT_CODE(exchange_init(&y, EPX_FIXED_COUNTS), EPX_SUCCESS);
    SETTLE();
    for (int i = 0; i < STARTS; i++) {
        if (i) {
            exchange_fill_rows(&x);
            exchange_fill_rows(&y);
        }
        both[0] = i % 2 ? x.request : y.request;
        both[1] = i % 2 ? y.request : x.request;
        EXPECT_CODE(EPX_Startall(2, both), EPX_SUCCESS);
        exchange_wait(&y);
        exchange_wait(&x);
        SETTLE();
        x.data.seed += 1000;
        y.data.seed += 1000;
    }
    end(&x);
    end(&y);
    neighbors_close(&n);
}
END_TEST

START_TEST(a_request_holds_its_graph)
{
    struct neighbors n = open_graph(SHAPE_RING, 430);
    struct exchange x = exchange_on(&n, 431, EPX_FLOAT32, 3000);

    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    EXPECT_CODE(EPX_Start(&x.request), EPX_SUCCESS);
    neighbors_close(&n);
    exchange_wait(&x);
    SETTLE();
    x.data.seed++;
    exchange_fill(&x);
    start(&x);
    end(&x);
}
END_TEST

START_TEST(graphs_come_and_go)
{
    for (int i = 0; i < 12; i++) {
        struct neighbors first = open_graph((enum graph_shape)(i % NUM_SHAPES), 440 + (uint64_t)i);
        struct neighbors second = open_graph(SHAPE_RANDOM, 460 + (uint64_t)i);
        struct exchange x = exchange_on(&second, 470 + (uint64_t)i, EPX_FLOAT16, 50);

        neighbors_close(&first);
        run(&x);
        neighbors_close(&second);
    }
}
END_TEST

START_TEST(any_exchange_is_exact)
{
    uint64_t seed = 6000 + (uint64_t)_i;
    struct neighbors n = open_graph(SHAPE_RANDOM, seed);
    struct exchange x = exchange_on(&n, seed, EPX_BYTE + data_below(seed, 1, 1, 7),
                                    1 + data_below(seed, 1, 2, 3000));

    x.most_rows = data_below(seed, 1, 3, 20);
    x.gap = data_below(seed, 1, 4, 3);
    x.short_rows = data_below(seed, 1, 5, 3) == 0 ? x.most_rows / 2 : 0;
    run_persistent(&x, data_below(seed, 1, 6, 3));
    neighbors_close(&n);
}
END_TEST

/* An exchange with as many rows of one length from and for each neighbour, in memory of the
 * space. */
struct even {
    int64_t *counts, *displs, *recvcounts, *rdispls;
    char *out, *in;
};

static struct even even_alloc(int degree, int64_t rows, size_t row_bytes)
{
    const size_t list = (size_t)degree * sizeof(int64_t);
    const size_t bytes = (size_t)degree * (size_t)rows * row_bytes;
    struct even e = {space_alloc(list), space_alloc(list),  space_alloc(list),
                     space_alloc(list), space_alloc(bytes), space_alloc(bytes)};
    int64_t counts[8], displs[8];

    for (int i = 0; i < degree; i++) {
        counts[i] = rows;
        displs[i] = i * rows;
    }
    space_put(e.counts, counts, list);
    space_put(e.displs, displs, list);
    return e;
}

static void even_free(struct even *e)
{
    void *all[] = {e->counts, e->displs, e->recvcounts, e->rdispls, e->out, e->in};

    for (int i = 0; i < 6; i++)
        space_free(all[i]);
}

static const int unlike_lengths[] = {50, 5000, 300000};

/* The length of a row differs on rank 0: its neighbours and itself fail, nobody else does. */
START_TEST(another_length_fails_on_both_ranks)
{
    struct neighbors n = open_graph(SHAPE_RING, 480);
    int beside = suite_rank == 0 || suite_rank == 1 || suite_rank == suite_size - 1;
    int length = unlike_lengths[_i] + (suite_rank == 0);
    struct even e = even_alloc(2, 2, (size_t)length);
    EPX_Request request;

    EXPECT_CODE(EPX_Neighbor_alltoallv(e.out, e.counts, e.displs, e.in, e.recvcounts, e.rdispls, 4,
                                       length, EPX_BYTE, n.graph, EPX_STREAM_NULL, &request),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE),
                beside && suite_size > 1 ? EPX_ERR_ARG : EPX_SUCCESS);
    SETTLE();
    even_free(&e);
    layer_works(comm);
    neighbors_close(&n);
}
END_TEST

static int create(int indegree, const int *sources, int outdegree, const int *destinations,
                  EPX_Graph *graph)
{
    return EPX_Graph_create_adjacent(comm, indegree, sources, outdegree, destinations, graph);
}

START_TEST(an_edge_that_one_side_names_makes_no_graph)
{
    const int next = (suite_rank + 1) % suite_size, twice[] = {next, next};
    const int last = (suite_rank + suite_size - 1) % suite_size;
    char message[EPX_MAX_ERROR_STRING];
    EPX_Graph graph = EPX_GRAPH_NULL;
    int length;

    EXPECT_CODE(create(0, NULL, suite_rank == 0, &next, &graph), EPX_ERR_ARG);
    EPX_Comm_get_error_message(comm, message, &length);
    EXPECT(strstr(message, "in destinations 1 times") && strstr(message, "in sources 0 times"),
           "the message is \"%s\"", message);
    EXPECT_CODE(create(suite_rank == 0, &last, 0, NULL, &graph), EPX_ERR_ARG);
    EXPECT_CODE(create(1, &last, suite_rank == 0 ? 2 : 1, twice, &graph), EPX_ERR_ARG);
    EXPECT(graph == EPX_GRAPH_NULL, "a call that failed made a graph");
    SETTLE();
    layer_works(comm);
}
END_TEST

/* Kernels are given a graph by value: 128 edges begin, or end, at a rank at most. */
START_TEST(a_device_has_room_for_128_edges)
{
    EPX_Graph graph = EPX_GRAPH_NULL;
    int selves[129];

    for (int i = 0; i < 129; i++)
        selves[i] = suite_rank;
    EXPECT_CODE(create(128, selves, 128, selves, &graph), EPX_SUCCESS);
    EXPECT_CODE(EPX_Graph_free(&graph), EPX_SUCCESS);
    EXPECT_CODE(create(129, selves, 129, selves, &graph),
                space_is_device() ? EPX_ERR_UNSUPPORTED : EPX_SUCCESS);
    if (graph != EPX_GRAPH_NULL)
        EXPECT_CODE(EPX_Graph_free(&graph), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static uint64_t messages_so_far(void)
{
    EPX_Stats stats = EPX_STATS_INIT;

    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
    return stats.messages;
}

/* On hosts words and rows are counted, which test_scale.c does. */
START_TEST(an_exchange_on_a_device_counts_its_neighbours)
{
    const uint64_t neighbours = suite_size < 3 ? (uint64_t)suite_size - 1 : 2;
    struct neighbors n = open_graph(SHAPE_RING, 484);
    struct exchange x = exchange_on(&n, 485, EPX_BYTE, 100);
    uint64_t before = messages_so_far(), counted;

    run(&x);
    counted = messages_so_far() - before;
    EXPECT(space_is_device() ? counted == neighbours : counted >= neighbours, "%llu messages",
           (unsigned long long)counted);
    neighbors_close(&n);
    SETTLE();
}
END_TEST

/* What an exchange on another graph than that of rank 0 gives. On devices neighbours of rank 0 tell
 * it; where kernels store, and where they copy messages, all ranks do. */
static void expect_refusal(int code, enum graph_shape shape)
{
    const int last = suite_size - 1;
    const int near =
        shape == SHAPE_ALL || (shape == SHAPE_RING && (suite_rank <= 1 || suite_rank == last));

    if (suite_size == 1 || !space_is_device())
        EXPECT(code == EPX_SUCCESS, "gave %d", code);
    else if (near || suite_stores_on_devices())
        EXPECT(code == EPX_ERR_ARG, "gave %d", code);
    else
        EXPECT(code == EPX_ERR_ARG || code == EPX_SUCCESS, "gave %d", code);
}

START_TEST(another_graph_is_refused_on_devices)
{
    static const enum graph_shape shapes[] = {SHAPE_SELF, SHAPE_ALL, SHAPE_RING};
    struct neighbors first = open_graph(shapes[_i], 481), second = open_graph(shapes[_i], 481);
    struct exchange x = exchange_on(suite_rank ? &first : &second, 483, EPX_BYTE, 100);

    EXPECT_CODE(exchange_start(&x), EPX_SUCCESS);
    expect_refusal(EPX_Wait(&x.request, MPI_STATUS_IGNORE), shapes[_i]);
    SETTLE();
    exchange_free(&x);
    layer_works(comm);
    neighbors_close(&first);
    neighbors_close(&second);
}
END_TEST

START_TEST(wrong_lists_make_no_graph)
{
    const int beyond = suite_size, below = -1, self = suite_rank;
    EPX_Graph graph = EPX_GRAPH_NULL;

    EXPECT_CODE(create(1, &beyond, 1, &self, &graph), EPX_ERR_ARG);
    EXPECT_CODE(create(1, &self, 1, &below, &graph), EPX_ERR_ARG);
    EXPECT_CODE(create(1, NULL, 1, &self, &graph), EPX_ERR_ARG);
    EXPECT_CODE(create(1, &self, 1, NULL, &graph), EPX_ERR_ARG);
    EXPECT_CODE(create(-2, &self, 1, &self, &graph), EPX_ERR_ARG);
    EXPECT_CODE(create(1, &self, -1, &self, &graph), EPX_ERR_ARG);
    EXPECT_CODE(create(1, &self, 1, &self, NULL), EPX_ERR_ARG);
    EXPECT(graph == EPX_GRAPH_NULL, "a call that failed made a graph");
    EXPECT_CODE(EPX_Graph_free(NULL), EPX_ERR_ARG);
    EXPECT_CODE(EPX_Graph_free(&graph), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(a_freed_graph_is_refused)
{
    struct neighbors n = open_graph(SHAPE_SELF, 490), copy = n;
    struct exchange x = exchange_on(&copy, 491, EPX_BYTE, 30);

    neighbors_close(&n);
    EXPECT_CODE(exchange_start(&x), EPX_ERR_ARG);
    exchange_free(&x);
    EXPECT_CODE(EPX_Graph_free(&copy.graph), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

START_TEST(a_communicator_with_graphs_is_not_freed)
{
    EPX_Comm own = suite_comm(NULL);
    struct neighbors n = {SHAPE_RING, 495, EPX_GRAPH_NULL};

    EXPECT_CODE(neighbors_open(&n, own), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&own), EPX_ERR_PENDING);
    neighbors_close(&n);
    EXPECT_CODE(EPX_Comm_free(&own), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* A persistent request outlives graph and communicator, which it holds. */
START_TEST(a_request_outlives_its_communicator)
{
    EPX_Comm own = suite_comm(NULL);
    struct neighbors n = {SHAPE_RING, 496, EPX_GRAPH_NULL};
    struct exchange x = exchange_on(&n, 497, EPX_BYTE, 300);

    x.comm = own;
    x.memory = MEMORY_MALLOC;
    EXPECT_CODE(neighbors_open(&n, own), EPX_SUCCESS);
    EXPECT_CODE(exchange_init(&x, EPX_FIXED_COUNTS), EPX_SUCCESS);
    neighbors_close(&n);
    EXPECT_CODE(EPX_Comm_free(&own), EPX_SUCCESS);
    EXPECT_CODE(EPX_Start(&x.request), EPX_ERR_COMM);
    end(&x);
}
END_TEST

/* Returns the code of the start, or of the operation. */
static int start_and_wait(EPX_Request *request)
{
    int code = EPX_Start(request);

    return code == EPX_SUCCESS ? EPX_Wait(request, MPI_STATUS_IGNORE) : code;
}

/* The last rank comes when the others have given it up; those that are no neighbours of it learn
 * that too. */
START_TEST(a_time_out_finishes_the_communicator)
{
    EPX_Comm own = suite_comm("epx_timeout_ms", "600", NULL);
    struct neighbors n = {SHAPE_RING, 498, EPX_GRAPH_NULL};
    struct exchange x = exchange_on(&n, 499, EPX_BYTE, 300);
    int code;

    x.comm = own;
    x.memory = MEMORY_MALLOC;
    EXPECT_CODE(neighbors_open(&n, own), EPX_SUCCESS);
    EXPECT_CODE(exchange_init(&x, 0), EPX_SUCCESS);
    SETTLE();
    if (suite_rank == suite_size - 1)
        suite_sleep_ms(4000);
    do
        code = start_and_wait(&x.request);
    while (code == EPX_SUCCESS && suite_size > 1);
    EXPECT_CODE(code, suite_size > 1 ? EPX_ERR_TIMEOUT : EPX_SUCCESS);
    EXPECT_CODE(EPX_Request_free(&x.request), EPX_SUCCESS);
    neighbors_close(&n);
    EXPECT_CODE(EPX_Comm_free(&own), EPX_SUCCESS);
    SETTLE();
    exchange_free(&x);
}
END_TEST

/* Sends one number along each edge of the topology, as EPX sees it. */
static void check_topology(MPI_Comm topology, const int *neighbors, int degree)
{
    struct even e = even_alloc(degree, 1, sizeof(int32_t));
    EPX_Comm own;
    EPX_Graph graph;
    EPX_Request request;
    int32_t out[8], in[8];

    for (int i = 0; i < degree; i++)
        out[i] = 1000 * suite_rank + neighbors[i];
    space_put(e.out, out, (size_t)degree * sizeof(*out));
    EXPECT_CODE(EPX_Comm_create(topology, MPI_INFO_NULL, &own), EPX_SUCCESS);
    EXPECT_CODE(EPX_Graph_create_adjacent(own, EPX_FROM_TOPOLOGY, NULL, 0, NULL, &graph),
                EPX_SUCCESS);
    SETTLE();
    EXPECT_CODE(EPX_Neighbor_alltoallv(e.out, e.counts, e.displs, e.in, e.recvcounts, e.rdispls,
                                       degree, 1, EPX_FLOAT32, graph, EPX_STREAM_NULL, &request),
                EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    space_get(in, e.in, (size_t)degree * sizeof(*in));
    for (int i = 0; i < degree; i++)
        EXPECT(in[i] == 1000 * neighbors[i] + suite_rank, "neighbour %d sent %d", i, in[i]);
    EXPECT_CODE(EPX_Graph_free(&graph), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&own), EPX_SUCCESS);
    even_free(&e);
    SETTLE();
}

START_TEST(a_topology_of_mpi_is_a_graph)
{
    const int up = (suite_rank + 1) % suite_size;
    const int down = (suite_rank + suite_size - 1) % suite_size;
    const int ring[] = {down, up};
    const int periodic = 1, weights[] = {1, 1};
    EPX_Graph graph = EPX_GRAPH_NULL;
    MPI_Comm topology;
    int dims[1];

    dims[0] = suite_size;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, &periodic, 0, &topology);
    check_topology(topology, ring, 2);
    MPI_Comm_free(&topology);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, ring, weights, 2, ring, weights,
                                   MPI_INFO_NULL, 0, &topology);
    check_topology(topology, ring, 2);
    MPI_Comm_free(&topology);
    EXPECT_CODE(create(EPX_FROM_TOPOLOGY, NULL, 0, NULL, &graph), EPX_ERR_ARG);
    SETTLE();
}
END_TEST

static void add_faults(TCase *tcase)
{
    tcase_add_loop_test(tcase, another_length_fails_on_both_ranks, 0, 3);
    tcase_add_test(tcase, an_edge_that_one_side_names_makes_no_graph);
    tcase_add_test(tcase, a_device_has_room_for_128_edges);
    tcase_add_test(tcase, an_exchange_on_a_device_counts_its_neighbours);
    tcase_add_loop_test(tcase, another_graph_is_refused_on_devices, 0, space_is_device() ? 3 : 1);
    tcase_add_test(tcase, wrong_lists_make_no_graph);
    tcase_add_test(tcase, a_freed_graph_is_refused);
    tcase_add_test(tcase, a_communicator_with_graphs_is_not_freed);
    tcase_add_test(tcase, a_request_outlives_its_communicator);
    tcase_add_test(tcase, a_time_out_finishes_the_communicator);
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("neighbor");
    TCase *tcase = tcase_create("neighbor");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, rows_reach_the_neighbours, 0, NUM_SHAPES);
    tcase_add_loop_test(tcase, rows_of_any_length_arrive, 0, 10);
    tcase_add_loop_test(tcase, rows_of_no_bytes_are_told, 0, 3);
    tcase_add_loop_test(tcase, several_graphs_are_in_flight, 0, 4);
    tcase_add_test(tcase, other_operations_run_between);
    tcase_add_test(tcase, ranks_without_neighbours_do_not_wait);
    tcase_add_loop_test(tcase, a_rank_without_room_harms_nobody, 0, 6);
    tcase_add_loop_test(tcase, it_is_started_again_and_again, 0, NUM_SHAPES);
    tcase_add_test(tcase, two_persistent_ones_take_turns);
    tcase_add_test(tcase, a_request_holds_its_graph);
    tcase_add_test(tcase, graphs_come_and_go);
    tcase_add_loop_test(tcase, any_exchange_is_exact, 0, 10);
    tcase_add_test(tcase, a_topology_of_mpi_is_a_graph);
    add_faults(tcase);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

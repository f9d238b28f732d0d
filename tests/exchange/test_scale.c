/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_scale.c - what a graph costs does not grow with the number of ranks: each rank has six
 * neighbours, whatever the number of ranks, and the same numbers must come out. They stand here, so
 * that runs of 8, 16, 32 and 64 ranks compare with each other.
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

enum { DEGREE = 6, TIMES = 10 };

static EPX_Comm comm;
static EPX_Graph graph;

static int neighbor(int i)
{
    int by = i % 2 ? -(1 + i / 2) : 1 + i / 2;

    return (suite_rank + by + suite_size) % suite_size;
}

static void make_graph(EPX_Graph *made)
{
    int neighbors[DEGREE];

    for (int i = 0; i < DEGREE; i++)
        neighbors[i] = neighbor(i);
    EXPECT_CODE(EPX_Graph_create_adjacent(comm, DEGREE, neighbors, DEGREE, neighbors, made),
                EPX_SUCCESS);
}

static void open_comm(void)
{
    comm = suite_comm("epx_timeout_ms", "300000", NULL);
    make_graph(&graph);
    SETTLE();
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Graph_free(&graph), EPX_SUCCESS);
    suite_free_comm(&comm);
}

static int64_t messages_so_far(void)
{
    EPX_Stats stats = EPX_STATS_INIT;

    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
    return (int64_t)stats.messages;
}

struct rows {
    int64_t counts[DEGREE], displs[DEGREE], came[DEGREE], came_at[DEGREE];
    char *out, *in;
    int row_bytes;
};

static void make_rows(struct rows *rows, int row_bytes)
{
    void *window;

    rows->row_bytes = row_bytes;
    rows->out = calloc(DEGREE, (size_t)row_bytes);
    EXPECT_CODE(EPX_Alloc_mem((MPI_Aint)DEGREE * row_bytes, comm, &window), EPX_SUCCESS);
    rows->in = window;
    for (int i = 0; i < DEGREE; i++) {
        rows->counts[i] = 1;
        rows->displs[i] = i;
    }
}

static void free_rows(struct rows *rows)
{
    EXPECT_CODE(EPX_Free_mem(rows->in, comm), EPX_SUCCESS);
    free(rows->out);
}

static void init(struct rows *rows, int flags, EPX_Request *request)
{
    EXPECT_CODE(EPX_Neighbor_alltoallv_init(rows->out, rows->counts, rows->displs, rows->in,
                                            rows->came, rows->came_at, DEGREE, rows->row_bytes,
                                            EPX_BYTE, graph, EPX_STREAM_NULL, flags, request),
                EPX_SUCCESS);
}

static void run(EPX_Request *request)
{
    EXPECT_CODE(EPX_Start(request), EPX_SUCCESS);
    EXPECT_CODE(EPX_Wait(request, MPI_STATUS_IGNORE), EPX_SUCCESS);
}

/* Messages of one operation, after the first of its request. */
static int64_t messages_of(int row_bytes, int flags)
{
    EPX_Request request;
    struct rows rows;
    int64_t before;

    make_rows(&rows, row_bytes);
    init(&rows, flags, &request);
    run(&request);
    before = messages_so_far();
    for (int i = 0; i < TIMES; i++)
        run(&request);
    before = messages_so_far() - before;
    EXPECT_CODE(EPX_Request_free(&request), EPX_SUCCESS);
    free_rows(&rows);
    EXPECT(before % TIMES == 0, "%lld messages in %d operations", (long long)before, TIMES);
    return before / TIMES;
}

/* On shm a short row goes with the one word of an edge, for each edge has one back here. For a long
 * row, whose place a grant tells, there is a word behind it, too; with fixed counts that is all,
 * but for a word that the receiver is ready. By messages rows are one a neighbour, and words
 * another unless counts are fixed. */
START_TEST(messages_follow_from_the_degree)
{
    const int stores = suite_transport()[0] == 's';

    EXPECT(messages_of(64, EPX_FIXED_COUNTS) == DEGREE, "short, fixed");
    EXPECT(messages_of(30000, EPX_FIXED_COUNTS) == (stores ? 2 : 1) * DEGREE, "long, fixed");
    EXPECT(messages_of(64, 0) == (stores ? 1 : 2) * DEGREE, "short rows");
    EXPECT(messages_of(30000, 0) == (stores ? 3 : 2) * DEGREE, "long rows");
    SETTLE();
}
END_TEST

/* One operation, whose rows bear the rank and the number of the operation. */
static void run_marked(struct rows *rows, EPX_Request *request, int number)
{
    memset(rows->out, suite_rank + 100 * number, (size_t)DEGREE * (size_t)rows->row_bytes);
    run(request);
    for (int64_t b = 0; b < (int64_t)DEGREE * rows->row_bytes; b++)
        if (rows->in[b] != (char)(neighbor((int)(b / rows->row_bytes)) + 100 * number)) {
            EXPECT(0, "operation %d: byte %lld is wrong", number, (long long)b);
            return;
        }
}

/* Half of the ranks start one of two requests, the others the other one. Once after that each
 * request meets its own kind again and tells what it must; from then on it tells as little as
 * before. */
START_TEST(requests_that_met_others_still_tell_little)
{
    const int stores = suite_transport()[0] == 's';
    EPX_Request request[2];
    struct rows rows[2];
    int64_t before;
    int number = 0;

    for (int i = 0; i < 2; i++) {
        make_rows(&rows[i], 30000);
        init(&rows[i], EPX_FIXED_COUNTS, &request[i]);
        run_marked(&rows[i], &request[i], number++);
    }
    run_marked(&rows[suite_rank % 2], &request[suite_rank % 2], number++);
    for (int i = 0; i < 2; i++)
        run_marked(&rows[i], &request[i], number++);
    before = messages_so_far();
    for (int i = 0; i < TIMES; i++)
        run_marked(&rows[i % 2], &request[i % 2], number++);
    EXPECT(messages_so_far() - before == (stores ? 2 : 1) * DEGREE * TIMES, "%lld messages",
           (long long)(messages_so_far() - before));
    for (int i = 0; i < 2; i++) {
        EXPECT_CODE(EPX_Request_free(&request[i]), EPX_SUCCESS);
        free_rows(&rows[i]);
    }
    SETTLE();
}
END_TEST

/* Memory of malloc in use; 0 where that cannot be told. */
static int64_t bytes_in_use(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    return (int64_t)mallinfo2().uordblks;
#else
    return 0;
#endif
}

/* What each of some graphs takes of malloc. */
static int64_t bytes_of_graph(void)
{
    EPX_Graph more[TIMES];
    int64_t before = bytes_in_use(), bytes;

    for (int i = 0; i < TIMES; i++)
        make_graph(&more[i]);
    bytes = (bytes_in_use() - before) / TIMES;
    for (int i = 0; i < TIMES; i++)
        EXPECT_CODE(EPX_Graph_free(&more[i]), EPX_SUCCESS);
    return bytes;
}

/* What a graph keeps, beside words in windows that graphs share. MPI allocates now and then, too:
 * the least of several times counts. */
START_TEST(a_graph_takes_memory_for_its_edges_alone)
{
    int64_t least = bytes_of_graph();

    for (int i = 0; i < 4; i++) {
        int64_t bytes = bytes_of_graph();

        least = bytes < least ? bytes : least;
    }
    EXPECT(least < 6000, "%lld bytes a graph", (long long)least);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("scale");
    TCase *tcase = tcase_create("scale");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_test(tcase, messages_follow_from_the_degree);
    tcase_add_test(tcase, requests_that_met_others_still_tell_little);
    tcase_add_test(tcase, a_graph_takes_memory_for_its_edges_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_big.c - more than 2^31 bytes from rank 0 to the last rank in one operation, in one row and
 * in many; every byte is compared with a generator. Skipped where memory is short.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "support/suite.h"

enum { CHUNK = 4096, LONG_COUNT = (1 << 28) + 5, SHORT_COUNT = 131101, MANY_ROWS = 2053 };

static const int64_t needed_bytes = INT64_C(6) << 30, needed_shm_bytes = INT64_C(3) << 30;

static EPX_Comm comm;

struct rows {
    int64_t num;
    int count;
};
static const struct rows one_long = {1, LONG_COUNT}, many_short = {MANY_ROWS, SHORT_COUNT};

static size_t bytes_of(struct rows rows)
{
    return (size_t)rows.num * (size_t)rows.count * sizeof(double);
}

/* Whole numbers of 52 bits: exact as double, and all bytes but the exponent's are any. */
static void generate(uint64_t first, int num, double *chunk)
{
    for (int i = 0; i < num; i++) {
        uint64_t x = (first + (uint64_t)i + 1) * UINT64_C(0x9e3779b97f4a7c15);

        x = (x ^ (x >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
        chunk[i] = (double)((x ^ (x >> 32)) >> 12);
    }
}

static void fill(double *data, struct rows rows)
{
    int64_t elements = rows.num * rows.count;

    for (int64_t i = 0; i < elements; i += CHUNK)
        generate((uint64_t)i, elements - i < CHUNK ? (int)(elements - i) : CHUNK, data + i);
}

static void expect_generated(const char *what, const double *data, struct rows rows)
{
    int64_t elements = rows.num * rows.count;
    double chunk[CHUNK];

    for (int64_t i = 0; i < elements; i += CHUNK) {
        int num = elements - i < CHUNK ? (int)(elements - i) : CHUNK;

        generate((uint64_t)i, num, chunk);
        if (!EXPECT(memcmp(data + i, chunk, (size_t)num * sizeof(*chunk)) == 0,
                    "%s differs in elements %lld to %lld", what, (long long)i,
                    (long long)(i + num - 1)))
            return;
    }
}

static int is_last(void)
{
    return suite_rank == suite_size - 1;
}

/* Untouched memory costs nothing: only the ranks that have rows touch theirs. */
static double *room_for(struct rows rows)
{
    double *data = malloc(bytes_of(rows));

    EXPECT(data != NULL, "no memory for %zu bytes", bytes_of(rows));
    return data;
}

static void exchange(struct rows rows)
{
    int64_t counts[8] = {0}, displs[8] = {0}, recvcounts[8], rdispls[8];
    double *from = room_for(rows), *to = room_for(rows);
    EPX_Request request;

    if (suite_rank == 0) {
        counts[suite_size - 1] = rows.num;
        fill(from, rows);
    }
    SETTLE();
    if (EXPECT_CODE(EPX_Alltoallv(from, counts, displs, to, recvcounts, rdispls, rows.num,
                                  rows.count, EPX_FLOAT64, comm, EPX_STREAM_NULL, &request),
                    EPX_SUCCESS))
        EXPECT_CODE(EPX_Wait(&request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    EXPECT(recvcounts[0] == (is_last() ? rows.num : 0), "%lld rows", (long long)recvcounts[0]);
    if (is_last())
        expect_generated("alltoallv: recvbuf", to, rows);
    SETTLE();
    free(from);
    free(to);
}

static EPX_Route open_route(struct rows rows)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;

    attr.num_experts = suite_size;
    attr.top_k = 1;
    attr.max_tokens = (int)rows.num;
    attr.recv_capacity = is_last() ? rows.num : 1;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &route), EPX_SUCCESS);
    SETTLE();
    return route;
}

static void finish(EPX_Request *request, int code)
{
    if (EXPECT_CODE(code, EPX_SUCCESS))
        EXPECT_CODE(EPX_Wait(request, MPI_STATUS_IGNORE), EPX_SUCCESS);
    SETTLE();
}

/* Sends rank 0's tokens to the last rank's expert, and back to where they were. */
static void round_trip(struct rows rows, double *received)
{
    EPX_Route route = open_route(rows);
    int64_t *ids = calloc((size_t)rows.num, sizeof(*ids));
    int num_tokens = suite_rank == 0 ? (int)rows.num : 0;
    double *tokens = room_for(rows);
    EPX_Request request;

    for (int t = 0; t < num_tokens; t++)
        ids[t] = suite_size - 1;
    if (suite_rank == 0)
        fill(tokens, rows);
    SETTLE();
    finish(&request, EPX_Route_tokens(ids, num_tokens, route, EPX_STREAM_NULL, &request));
    finish(&request, EPX_Dispatch(tokens, NULL, received, NULL, rows.count, EPX_FLOAT64, route,
                                  EPX_STREAM_NULL, &request));
    if (is_last())
        expect_generated("dispatch: recvbuf", received, rows);
    if (suite_rank == 0)
        memset(tokens, 0xab, bytes_of(rows));
    SETTLE();
    finish(&request, EPX_Combine(received, NULL, tokens, rows.count, EPX_FLOAT64, route,
                                 EPX_STREAM_NULL, &request));
    if (suite_rank == 0)
        expect_generated("combine: recvbuf", tokens, rows);
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    SETTLE();
    free(tokens);
    free(ids);
}

static void open_comm(void)
{
    comm = suite_comm(NULL, NULL);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

START_TEST(a_long_row_is_exchanged)
{
    exchange(one_long);
}
END_TEST

START_TEST(many_rows_are_exchanged)
{
    exchange(many_short);
}
END_TEST

START_TEST(a_long_row_comes_back)
{
    double *received = room_for(one_long);

    round_trip(one_long, received);
    free(received);
}
END_TEST

START_TEST(many_rows_come_back)
{
    struct rows here = {is_last() ? MANY_ROWS : 1, SHORT_COUNT};
    double *received = NULL;

    EXPECT_CODE(EPX_Alloc_mem((MPI_Aint)bytes_of(here), comm, &received), EPX_SUCCESS);
    SETTLE();
    round_trip(many_short, received);
    EXPECT_CODE(EPX_Free_mem(received, comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static int64_t available_bytes(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    long long kilobytes = 0;
    char line[256];

    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemAvailable: %lld", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

static int64_t available_shm_bytes(void)
{
    struct statvfs shm;

    if (statvfs("/dev/shm", &shm) != 0)
        return 0;
    return (int64_t)shm.f_bavail * (int64_t)shm.f_frsize;
}

static void skip_if_short(const char *what, int64_t bytes, int64_t needed)
{
    char reason[128];
    int64_t least;

    MPI_Allreduce(&bytes, &least, 1, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
    snprintf(reason, sizeof(reason), "%lld MiB of %s are available, %lld are needed",
             (long long)(least >> 20), what, (long long)(needed >> 20));
    if (least < needed)
        suite_skip(reason);
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("big");
    TCase *tcase = tcase_create("big");

    skip_if_short("memory", available_bytes(), needed_bytes);
    if (strcmp(suite_transport(), "mpi") != 0)
        skip_if_short("/dev/shm", available_shm_bytes(), needed_shm_bytes);
    tcase_add_checked_fixture(tcase, open_comm, close_comm);
    tcase_add_test(tcase, a_long_row_is_exchanged);
    tcase_add_test(tcase, many_rows_are_exchanged);
    tcase_add_test(tcase, a_long_row_comes_back);
    tcase_add_test(tcase, many_rows_come_back);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

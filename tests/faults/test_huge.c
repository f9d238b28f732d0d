/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_huge.c - routes and memory that no machine has are refused at once, on all ranks, with the
 * values; next to no memory is touched before.
 */
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "support/suite.h"

enum { MOST_SECONDS = 3, MOST_TOUCHED_KB = 65536 };

static EPX_Comm comm;
static struct rusage before;
static double start;

static void open_comm(void)
{
    comm = suite_comm(NULL);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static void begin(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    getrusage(RUSAGE_SELF, &before);
    start = suite_seconds();
}

static void expect_refused(int code, const char *value)
{
    double seconds = suite_seconds() - start;
    char message[EPX_MAX_ERROR_STRING] = "";
    struct rusage after;
    int length;

    getrusage(RUSAGE_SELF, &after);
    EXPECT(code == EPX_ERR_NO_MEM || code == EPX_ERR_COUNT, "code %d", code);
    EXPECT(seconds < MOST_SECONDS, "took %.1f s", seconds);
    EXPECT(after.ru_maxrss - before.ru_maxrss < MOST_TOUCHED_KB, "%ld KiB became %ld",
           before.ru_maxrss, after.ru_maxrss);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    EXPECT(strstr(message, value) != NULL, "no %s in \"%s\"", value, message);
    SETTLE();
}

static const struct {
    int experts, top_k, max_tokens;
    int64_t capacity;
    EPX_Layout layout;
} shapes[] = {
    {8, 1, INT_MAX, 1, EPX_EXPERT_MAJOR},  {8, 64, INT_MAX, 1, EPX_EXPERT_MAJOR},
    {8, 64, INT_MAX, 0, EPX_EXPERT_MAJOR}, {8, 1, INT_MAX, INT_MAX, EPX_EXPERT_MAJOR},
    {8, 8, INT_MAX, 1, EPX_RANK_MAJOR},    {8, 64, INT_MAX, INT_MAX, EPX_RANK_MAJOR},
    {INT_MAX, 1, 1, 1, EPX_EXPERT_MAJOR},  {INT_MAX / 8, 64, INT_MAX, 1, EPX_EXPERT_MAJOR},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* Whether the private memory of a route, in epx_memory(7), is more than there is. */
static int is_huge(int shape)
{
    double tokens = shapes[shape].max_tokens, choices = shapes[shape].top_k;
    double row = shapes[shape].layout == EPX_RANK_MAJOR ? 4 * choices + 8 : 8;
    double bytes = tokens * (12 * choices + 32) + row * (double)shapes[shape].capacity;
    struct sysinfo machine;

    sysinfo(&machine);
    return shapes[shape].capacity == 0 || shapes[shape].experts == INT_MAX ||
           bytes > ((double)machine.totalram + (double)machine.totalswap) * machine.mem_unit;
}

START_TEST(a_huge_route_is_refused_at_once)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;

    if (!is_huge(_i))
        return;
    attr.num_experts = shapes[_i].experts;
    attr.top_k = shapes[_i].top_k;
    attr.max_tokens = shapes[_i].max_tokens;
    attr.recv_capacity = shapes[_i].capacity;
    attr.layout = shapes[_i].layout;
    attr.overflow = EPX_OVERFLOW_DROP;
    begin();
    expect_refused(EPX_Route_create(&attr, comm, &route), "2147483647");
    EXPECT(route == EPX_ROUTE_NULL, "a route is there");
    SETTLE();
}
END_TEST

/* No more rows can come than the worst case has: a capacity above it is cut, also if one rank alone
 * asks for so much. */
START_TEST(a_huge_capacity_is_cut)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Route route = EPX_ROUTE_NULL;
    int asks = suite_rank == suite_size - 1;

    attr.num_experts = 8;
    attr.top_k = 64;
    attr.max_tokens = 4;
    attr.layout = EPX_RANK_MAJOR;
    attr.recv_capacity = asks ? INT_MAX : 4 * suite_size;
    EXPECT_CODE(EPX_Route_create(&attr, comm, &route), EPX_SUCCESS);
    EXPECT_CODE(EPX_Route_get_view(route, &view), EPX_SUCCESS);
    EXPECT(view.capacity == 4 * suite_size, "capacity %lld", (long long)view.capacity);
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(huge_memory_is_refused_at_once)
{
    static const MPI_Aint bytes[] = {(MPI_Aint)1 << 50, PTRDIFF_MAX, PTRDIFF_MAX - 4096};
    int asks = _i % 2 || suite_rank == 0;
    void *base = NULL;

    begin();
    expect_refused(EPX_Alloc_mem(asks ? bytes[_i / 2] : 100, comm, &base), "bytes");
    EXPECT(base == NULL, "memory is there");
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("huge");
    TCase *tcase = tcase_create("huge");

    tcase_add_checked_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, a_huge_route_is_refused_at_once, 0, SHAPES);
    tcase_add_test(tcase, a_huge_capacity_is_cut);
    tcase_add_loop_test(tcase, huge_memory_is_refused_at_once, 0, 6);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

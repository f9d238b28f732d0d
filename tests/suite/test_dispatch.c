/* SPDX-License-Identifier: BSD-3-Clause */
/* test_dispatch.c - every row of EPX_Dispatch, for all datatypes, lengths and routings. */
#include <string.h>

#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

static EPX_Comm comm;

static void open_comm(void)
{
    comm = suite_comm("epx_window_bytes", "65536", NULL);
}

static void close_comm(void)
{
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

START_TEST(every_row_arrives_once)
{
    struct scenario s = scenario_edge(_i);

    scenario_print(&s);
    layer_run(&s, comm, DISPATCH, 3);
}
END_TEST

START_TEST(every_datatype_is_moved_as_it_is)
{
    struct scenario s = scenario_small(EPX_BYTE + _i / 2);

    s.layout = _i % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.count = 51;
    layer_run(&s, comm, DISPATCH, 2);
}
END_TEST

static const int lengths[] = {0, 1, 7, 4096, 65535, 65536, 65537, 200001, 2500003};

START_TEST(rows_of_any_length_arrive)
{
    struct scenario s = scenario_small(EPX_BYTE);

    s.experts = suite_size + 1;
    s.top_k = 2;
    s.max_tokens = 2;
    s.capacity_percent = 100;
    s.overflow = EPX_OVERFLOW_DROP;
    s.layout = _i / 2 % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.alignment = s.layout == EPX_EXPERT_MAJOR ? 2 : 1;
    s.count = lengths[_i / 2];
    s.row_bytes_known = _i % 2 && s.count <= 65536;
    s.memory = (enum memory)(_i % 3);
    layer_run(&s, comm, DISPATCH, 2);
}
END_TEST

START_TEST(empty_ranks_send_nothing)
{
    struct scenario s = scenario_small(EPX_FLOAT16);

    s.tokens = _i % 2 ? TOKENS_NONE : TOKENS_ONE_RANK;
    s.memory = (enum memory)(_i / 2);
    layer_run(&s, comm, DISPATCH, 2);
}
END_TEST

START_TEST(a_full_expert_takes_the_rows_of_all)
{
    struct scenario s = scenario_small(EPX_BFLOAT16);

    s.routing = ROUTING_ONE_EXPERT;
    s.tokens = TOKENS_FULL;
    s.max_tokens = 64;
    s.layout = _i ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    layer_run(&s, comm, DISPATCH, 2);
}
END_TEST

/* So many rows that stores bypass the caches, on both sides. */
START_TEST(more_rows_than_caches_hold_arrive)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.max_tokens = 256;
    s.count = suite_size > 4 ? 100 : 10001;
    s.memory = MEMORY_WINDOW;
    layer_run(&s, comm, DISPATCH, 1);
}
END_TEST

/* So many tokens that their records do not fit a stage, and rows so short that they do. */
START_TEST(more_tokens_than_a_stage_takes_are_routed)
{
    struct scenario s = scenario_small(EPX_FLOAT32);

    s.tokens = TOKENS_FULL;
    s.max_tokens = 2000;
    s.count = 2;
    layer_run(&s, comm, _i ? COMBINE : DISPATCH, 1);
}
END_TEST

/* So many rows that most operations of theirs are not small go straight to their places, or by way
 * of a stage, which has room for all if their length is known before, else goes in rounds. In some
 * cases not all have room at their experts. */
static void check_many_rows(int i, int max_tokens, int length)
{
    struct scenario s = scenario_small(EPX_BYTE);
    EPX_Comm windows = suite_comm("epx_window_bytes", i / 6 % 2 ? "65536" : "4194304", NULL);

    s.tokens = i % 4 ? TOKENS_FULL : TOKENS_UNEVEN;
    s.max_tokens = max_tokens;
    s.count = length;
    s.layout = i % 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.memory = (enum memory)(i % 3);
    s.weightless = i % 7 == 6;
    s.row_bytes_known = i / 3 % 2;
    if (i % 8 > 5) {
        s.capacity_percent = 80;
        s.overflow = EPX_OVERFLOW_DROP;
    }
    layer_run(&s, windows, DISPATCH, 1);
    suite_free_comm(&windows);
}

static const int short_lengths[] = {0, 1, 16, 100, 1040};

/* A warp of a GPU moves several such rows at once. */
START_TEST(many_short_rows_arrive)
{
    check_many_rows(_i, space_is_device() ? 12000 : 4000, short_lengths[_i % 5]);
}
END_TEST

/* More rows than a bank of a GPU holds, each for one slot. */
START_TEST(many_rows_of_one_slot_arrive)
{
    struct scenario s = scenario_one_slot(EPX_BYTE, _i % 2 ? 32771 : 32768);

    s.layout = _i / 2 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    s.memory = (enum memory)(_i % 3);
    layer_run(&s, comm, DISPATCH, 2);
}
END_TEST

static const int middle_lengths[] = {2700, 4096, 5761, 6144, 6145};

/* A warp of a GPU moves one such row at a time; blocks have more warps for all but the last length
 * than for longer rows. */
START_TEST(many_rows_of_middle_length_arrive)
{
    enum { SMALL_WINDOWS = 6 }; /* the first variant that has them */

    check_many_rows(SMALL_WINDOWS + _i, space_is_device() ? 520 : 200, middle_lengths[_i % 5]);
}
END_TEST

static int on_hier(void)
{
    char transport[64] = "";
    MPI_Info used;
    int found;

    EXPECT_CODE(EPX_Comm_get_info(comm, &used), EPX_SUCCESS);
    MPI_Info_get(used, "epx_transport", (int)sizeof(transport) - 1, transport, &found);
    MPI_Info_free(&used);
    return strchr(transport, '+') != NULL;
}

/* Whether rows cross to a node once, to be passed on there: nodes of one rank need no relay. */
static int relays(void)
{
    int several_nodes = 0, several_ranks = 0;

    for (int r = 1; r < suite_size; r++) {
        several_nodes |= suite_nodes[r] != suite_nodes[0];
        for (int s = 0; s < r; s++)
            several_ranks |= suite_nodes[r] == suite_nodes[s];
    }
    return on_hier() || (space_is_device() && several_nodes && several_ranks);
}

/* Rows of all ranks in the routing that layer_run makes first. */
struct all_rows {
    uint64_t unique;   /* (token, rank) */
    uint64_t network;  /* of those, to another node */
    uint64_t crossing; /* (token, node), to another node */
};

/* The rank that a pair goes to; -1 = none. */
static int rank_of_pair(const struct ref *ref, int home, int64_t pair)
{
    int64_t id = ref->in.ids[home][pair];

    return id >= 0 && id < ref->in.experts ? ref_owner(&ref->in, id) : -1;
}

/* Whether the pair is the first of its token to the rank, or to the node. */
static int is_first(const struct ref *ref, int home, int64_t pair, int by_node)
{
    int64_t first = pair - pair % ref->in.top_k;
    int owner = rank_of_pair(ref, home, pair);

    for (int64_t p = first; p < pair; p++) {
        int other = rank_of_pair(ref, home, p);

        if (other >= 0 && (by_node ? suite_nodes[other] == suite_nodes[owner] : other == owner))
            return 0;
    }
    return owner >= 0;
}

static void count_home(const struct ref *ref, int home, struct all_rows *all)
{
    int64_t pairs = (int64_t)ref->in.tokens[home] * ref->in.top_k;

    for (int64_t p = 0; p < pairs; p++) {
        int owner = rank_of_pair(ref, home, p);
        int crosses = owner >= 0 && suite_nodes[owner] != suite_nodes[home];

        all->unique += (uint64_t)is_first(ref, home, p, 0);
        all->network += (uint64_t)(crosses && is_first(ref, home, p, 0));
        all->crossing += (uint64_t)(crosses && is_first(ref, home, p, 1));
    }
}

static struct all_rows count_all(const struct scenario *s)
{
    struct all_rows all = {0, 0, 0};
    struct routing routing;
    struct layer layer;

    layer_open(&layer, s, comm);
    routing_prepare(&routing, &layer, s->seed);
    for (int r = 0; r < suite_size; r++)
        count_home(routing.ref, r, &all);
    routing_free(&routing);
    layer_close(&layer);
    return all;
}

static uint64_t sum_of_ranks(uint64_t mine)
{
    uint64_t all;

    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* With relays, a row that crosses to another node counts there, and again where it is passed on. */
START_TEST(stats_count_what_was_sent)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    EPX_Stats stats = EPX_STATS_INIT;
    struct all_rows rows;
    uint64_t sent, network, all;

    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    open_comm();
    s.tokens = TOKENS_FULL;
    layer_run(&s, comm, DISPATCH, 1);
    EXPECT_CODE(EPX_Comm_get_stats(comm, &stats), EPX_SUCCESS);
    EXPECT(stats.calls == 2, "%llu calls", (unsigned long long)stats.calls);
    EXPECT(stats.timeouts == 0 && stats.host_syncs == 0, "timeouts or host syncs");
    sent = stats.rows_self + stats.rows_node + stats.rows_network;
    all = sum_of_ranks(sent);
    network = sum_of_ranks(stats.rows_network);
    rows = count_all(&s);
    EXPECT(network == (relays() ? rows.crossing : rows.network),
           "%llu rows crossed; %llu to nodes, %llu to ranks", (unsigned long long)network,
           (unsigned long long)rows.crossing, (unsigned long long)rows.network);
    EXPECT(all >= rows.unique && all <= (relays() ? 2 : 1) * rows.unique,
           "%llu rows sent, not %llu", (unsigned long long)all, (unsigned long long)rows.unique);
    EXPECT(suite_size > 1 || stats.rows_self == sent, "one rank sent to others");
    EXPECT(stats.bytes_self == stats.rows_self * 37 * 4, "%llu bytes in %llu rows",
           (unsigned long long)stats.bytes_self, (unsigned long long)stats.rows_self);
    SETTLE();
}
END_TEST

START_TEST(any_dispatch_is_that_of_the_reference)
{
    struct scenario s = scenario_random(1000 + (uint64_t)_i);

    scenario_print(&s);
    layer_run(&s, comm, DISPATCH, 2);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("dispatch");
    TCase *tcase = tcase_create("dispatch");

    suite_add_fixture(tcase, open_comm, close_comm);
    tcase_add_loop_test(tcase, every_row_arrives_once, 0, SCENARIO_EDGES);
    tcase_add_loop_test(tcase, every_datatype_is_moved_as_it_is, 0, 14);
    tcase_add_loop_test(tcase, rows_of_any_length_arrive, 0, 18);
    tcase_add_loop_test(tcase, empty_ranks_send_nothing, 0, 6);
    tcase_add_loop_test(tcase, a_full_expert_takes_the_rows_of_all, 0, 2);
    tcase_add_test(tcase, more_rows_than_caches_hold_arrive);
    tcase_add_loop_test(tcase, more_tokens_than_a_stage_takes_are_routed, 0, 2);
    tcase_add_loop_test(tcase, many_short_rows_arrive, 0, space_is_device() ? 30 : 5);
    tcase_add_loop_test(tcase, many_rows_of_middle_length_arrive, suite_size == 2 ? 0 : 3, 6);
    tcase_add_loop_test(tcase, many_rows_of_one_slot_arrive, 0, 4);
    tcase_add_test(tcase, stats_count_what_was_sent);
    tcase_add_loop_test(tcase, any_dispatch_is_that_of_the_reference, 0, 40);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

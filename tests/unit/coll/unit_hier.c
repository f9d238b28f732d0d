/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_hier.c - what crosses between pretended nodes, and in how many rounds: the bytes that the
 * transport is given, and the stats, are compared with a count of the (token, node) that the expert
 * ids name.
 */
#include <stdio.h>

#include "coll/hier/hier.h"
#include "support/operation.h"
#include "support/suite.h"

static struct epx_message_ops counting;
static const struct epx_message_ops *real;
static EPX_Comm comm;
static uint64_t sent_bytes; /* by this rank, in alltoallv */
static int rounds;

static int count_alltoallv(void *state, struct epx_blocks send, struct epx_blocks recv)
{
    rounds++;
    for (int r = 0; r < suite_size; r++) {
        EXPECT(!send.counts[r] || comm->node[r] != comm->node[comm->rank],
               "%d bytes for rank %d of the same node", send.counts[r], r);
        sent_bytes += (uint64_t)send.counts[r];
    }
    return real->alltoallv(state, send, recv);
}

static void open_comm(int ranks_per_node)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", ranks_per_node);
    comm = suite_comm("epx_transport", "shm+mpi", "epx_ranks_per_node", text, "epx_window_bytes",
                      "65536", NULL);
    real = comm->transport->ops->messages;
    counting = *real;
    counting.alltoallv = count_alltoallv;
}

static int names_node(const struct routing *routing, int home, int token, int node)
{
    int top_k = routing->ref->in.top_k, found = 0;

    for (int k = 0; k < top_k; k++) {
        int64_t id = routing->ids[home][token * top_k + k];

        found |= id >= 0 && comm->node[ref_owner(&routing->ref->in, id)] == node;
    }
    return found;
}

/* Counts the (token, node) of a rank that its expert ids name, on nodes other than its own. */
static uint64_t crossings(const struct routing *routing, int home)
{
    uint64_t rows = 0;

    for (int t = 0; t < routing->tokens[home]; t++)
        for (int node = 0; node < comm->num_nodes; node++)
            rows += node != comm->node[home] && names_node(routing, home, t, node);
    return rows;
}

static uint64_t all_crossings(const struct routing *routing)
{
    uint64_t rows = 0;

    for (int home = 0; home < suite_size; home++)
        rows += crossings(routing, home);
    return rows;
}

static uint64_t sum(uint64_t value)
{
    uint64_t all;

    MPI_Allreduce(&value, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* Bytes of pair weights that travel with a row; stats do not count them. */
static uint64_t weight_bytes(const struct scenario *s, enum verb verb)
{
    int travel = !s->weightless && (verb == DISPATCH || verb == DISPATCH_BACKWARD);

    return travel ? (uint64_t)s->top_k * sizeof(float) : 0;
}

/* Checks what crossed: what homes send in dispatch, their relays send in combine. */
static void check_crossings(const struct routing *routing, enum verb verb, const EPX_Stats *stats)
{
    const struct scenario *s = &routing->layer->s;
    uint64_t row_bytes = scenario_row_bytes(s), weights = weight_bytes(s, verb);
    uint64_t all = all_crossings(routing), own = crossings(routing, suite_rank);
    int homes_send = verb == DISPATCH || verb == COMBINE_BACKWARD;

    EXPECT(sum(stats->rows_network) == all, "not %llu rows crossed", (unsigned long long)all);
    EXPECT(sum(sent_bytes) == all * (row_bytes + weights), "other bytes than of %llu rows",
           (unsigned long long)all);
    EXPECT(stats->bytes_network == stats->rows_network * row_bytes, "other bytes were counted");
    EXPECT(stats->rows_network * (row_bytes + weights) == sent_bytes, "%llu rows in %llu bytes",
           (unsigned long long)stats->rows_network, (unsigned long long)sent_bytes);
    EXPECT(!homes_send || stats->rows_network == own, "%llu rows left, not %llu",
           (unsigned long long)stats->rows_network, (unsigned long long)own);
}

static void run_verb(struct routing *routing, enum verb verb)
{
    EPX_Stats before = EPX_STATS_INIT, after = EPX_STATS_INIT;
    struct operation op;

    EXPECT_CODE(EPX_Comm_get_stats(comm, &before), EPX_SUCCESS);
    sent_bytes = 0;
    rounds = 0;
    comm->transport->staged->messages = &counting;
    EXPECT_CODE(operation_start(&op, routing, verb, 5), EPX_SUCCESS);
    operation_finish(&op);
    comm->transport->staged->messages = real;
    EXPECT_CODE(EPX_Comm_get_stats(comm, &after), EPX_SUCCESS);
    after.rows_network -= before.rows_network;
    after.bytes_network -= before.bytes_network;
    check_crossings(routing, verb, &after);
    SETTLE();
    operation_free(&op);
}

static struct scenario small_layer(int ranks_per_node)
{
    struct scenario s = scenario_small(EPX_BFLOAT16);

    s.experts = 64;
    s.top_k = 8;
    s.count = 64;
    s.weightless = 1;
    s.ranks_per_node = ranks_per_node;
    return s;
}

static void run_layer(const struct scenario *s, void (*check)(enum verb verb))
{
    struct routing routing;
    struct layer layer;

    open_comm(s->ranks_per_node);
    layer_open(&layer, s, comm);
    EXPECT_CODE(routing_start(&routing, &layer, 9), EPX_SUCCESS);
    routing_finish(&routing);
    SETTLE();
    EXPECT(comm->num_nodes == 1 || all_crossings(&routing) > 0, "nothing has to cross");
    for (enum verb verb = DISPATCH; verb < VERBS; verb++) {
        run_verb(&routing, verb);
        if (check)
            check(verb);
        SETTLE();
    }
    routing_free(&routing);
    layer_close(&layer);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

START_TEST(a_row_crosses_once_to_each_node_that_needs_it)
{
    struct scenario s = small_layer(_i);

    s.routing = _i == 3 ? ROUTING_HOLES : ROUTING_UNIFORM;
    run_layer(&s, NULL);
}
END_TEST

/* The row is cut into segments, of which the last is shorter. */
START_TEST(a_row_longer_than_a_stage_crosses_as_its_bytes)
{
    struct scenario s = small_layer(3);

    s.max_tokens = 5;
    s.count = 10004;
    s.weightless = _i;
    run_layer(&s, NULL);
}
END_TEST

/* 40 rows of 512 bytes on each rank; an area takes 32 of every rank. */
static struct scenario two_stages_full(enum routing_kind routing)
{
    struct scenario s = small_layer(2);

    s.tokens = TOKENS_FULL;
    s.max_tokens = 40;
    s.top_k = 2;
    s.count = 256;
    s.routing = routing;
    return s;
}

static void in_one_round(enum verb verb)
{
    EXPECT(rounds == 1, "verb %d in %d rounds", verb, rounds);
}

START_TEST(rows_that_fit_go_at_once)
{
    struct scenario s = two_stages_full(ROUTING_UNIFORM);

    run_layer(&s, in_one_round);
}
END_TEST

static void sums_in_two_rounds(enum verb verb)
{
    int sums = verb == COMBINE || verb == DISPATCH_BACKWARD;

    EXPECT(rounds == 1 + (sums && suite_size > 3), "verb %d in %d rounds", verb, rounds);
}

START_TEST(rows_that_all_meet_on_one_rank_go_as_they_fit)
{
    struct scenario s = two_stages_full(ROUTING_ONE_EXPERT);

    run_layer(&s, sums_in_two_rounds);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("hier");
    TCase *tcase = tcase_create("hier");

    tcase_add_loop_test(tcase, a_row_crosses_once_to_each_node_that_needs_it, 1, 6);
    tcase_add_loop_test(tcase, a_row_longer_than_a_stage_crosses_as_its_bytes, 0, 2);
    tcase_add_test(tcase, rows_that_fit_go_at_once);
    tcase_add_test(tcase, rows_that_all_meet_on_one_rank_go_as_they_fit);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

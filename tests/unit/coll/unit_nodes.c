/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_nodes.c - who relays rows on device memory: the tables that all ranks of a communicator
 * make for their kernels, here in one process, for many ways to lie on nodes.
 */
#include <stdlib.h>
#include <string.h>

#include "coll/device/staged/device_nodes.h"
#include "support/data.h"
#include "support/suite.h"

enum { MOST_RANKS = 128, SMALL = 21, SHAPES = 72, GUARD = MOST_RANKS, NOBODY = 0x6d6d6d6d };

enum kind { ALONE, TOGETHER, EQUAL, INTERLEAVED, SCATTERED, HUGE_AND_SINGLES, NUM_KINDS };

static int shape, size, num_nodes, top_k, relays;
static int node[MOST_RANKS], place[MOST_RANKS], node_size[MOST_RANKS];

/* What each rank makes: its tables are here, and are copied to where kernels would read them. */
static struct maker {
    struct epx_comm comm;
    struct epx_device_nodes nodes;
    int32_t *table, *device;
} makers[MOST_RANKS];

static int pick(int what, int below)
{
    return data_below((uint64_t)shape, 77, (uint64_t)what, below);
}

static int node_of_kind(enum kind kind, int rank, int many)
{
    int huge = pick(2, size), half = size / 2 + 1;

    switch (kind) {
    case ALONE: return rank;
    case TOGETHER: return 0;
    case EQUAL: return rank / many;
    case INTERLEAVED: return rank % many;
    case SCATTERED: return pick(100 + rank, many);
    default: return (rank + size - huge) % size < half ? size : rank;
    }
}

/* Nodes are numbered by their lowest rank. */
static void number_nodes(int *of)
{
    num_nodes = 0;
    memset(node_size, 0, sizeof(node_size));
    for (int r = 0; r < size; r++) {
        int lowest = 0;

        while (of[lowest] != of[r])
            lowest++;
        node[r] = lowest == r ? num_nodes++ : node[lowest];
        place[r] = node_size[node[r]]++;
    }
}

static void choose_shape(int number)
{
    int of[MOST_RANKS], many;

    shape = number;
    size = 1 + pick(0, number / NUM_KINDS % 6 ? SMALL : MOST_RANKS);
    if (number / NUM_KINDS == 5)
        size = MOST_RANKS;
    many = 1 + pick(1, size < 9 ? size : 9);
    if (number % NUM_KINDS == EQUAL)
        size -= size % many;
    top_k = number % 5 ? 1 + pick(3, 12) : 64;
    for (int r = 0; r < size; r++)
        of[r] = node_of_kind(number % NUM_KINDS, r, many);
    number_nodes(of);
    relays = num_nodes > 1 && num_nodes < size;
}

static int32_t *take(int64_t words)
{
    size_t bytes = (size_t)(words + 2 * GUARD) * sizeof(int32_t);
    int32_t *table = malloc(bytes);

    ck_assert_ptr_nonnull(table);
    memset(table, NOBODY & 255, bytes);
    return table;
}

static void make(int rank)
{
    struct maker *maker = &makers[rank];
    int64_t words;

    memset(maker, 0, sizeof(*maker));
    maker->comm.rank = rank;
    maker->comm.size = size;
    maker->comm.node = node;
    maker->comm.num_nodes = num_nodes;
    maker->nodes = epx_device_nodes_of(&maker->comm, top_k);
    words = epx_device_nodes_words(&maker->comm);
    maker->table = take(words);
    maker->device = take(words);
    if (maker->nodes.num_nodes)
        epx_device_nodes_fill(&maker->comm, &maker->nodes, maker->table + GUARD,
                              maker->device + GUARD);
    memcpy(maker->device, maker->table, (size_t)(words + 2 * GUARD) * sizeof(int32_t));
}

static void for_all_shapes(void (*check)(void))
{
    for (int number = 0; number < SHAPES; number++) {
        choose_shape(number);
        for (int r = 0; r < size; r++)
            make(r);
        if (!EXPECT((makers[0].nodes.num_nodes > 0) == relays, "shape %d", shape))
            continue;
        check();
        for (int r = 0; r < size; r++) {
            free(makers[r].table);
            free(makers[r].device);
        }
    }
    SETTLE();
}

static const struct epx_device_nodes *nodes_of(int rank)
{
    return &makers[rank].nodes;
}

static int relay_of(int home, int on)
{
    return nodes_of(home)->relay[on];
}

/* Whether a rank relays for a home, as the home says. */
static int serves(int rank, int home)
{
    return node[home] != node[rank] && relay_of(home, node[rank]) == rank;
}

static int num_served(int rank)
{
    int num = 0;

    for (int home = 0; home < size; home++)
        num += serves(rank, home);
    return num;
}

static void check_without(void)
{
    for (int r = 0; r < size && !relays; r++) {
        EXPECT(nodes_of(r)->width == size && nodes_of(r)->num_served == 0 && nodes_of(r)->size == 0,
               "shape %d: %d rows a token of %d ranks", shape, nodes_of(r)->width, size);
        EXPECT(epx_device_nodes_words(&makers[r].comm) == 0, "shape %d", shape);
    }
}

START_TEST(without_relays_each_rank_has_a_share)
{
    for_all_shapes(check_without);
}
END_TEST

static void check_guards(const struct maker *maker)
{
    int64_t words = epx_device_nodes_words(&maker->comm);

    for (int i = 0; i < GUARD; i++)
        EXPECT(maker->table[i] == NOBODY && maker->table[GUARD + words + i] == NOBODY,
               "shape %d: %d words from or past the end of %lld", shape, i, (long long)words);
}

static void check_inside(const struct maker *maker, const int32_t *table, int num)
{
    int64_t at = table - (maker->device + GUARD);

    EXPECT(at >= 0 && at + num <= epx_device_nodes_words(&maker->comm),
           "shape %d: a table of %d words at %lld", shape, num, (long long)at);
    for (int i = 0; i < num; i++)
        EXPECT(table[i] != NOBODY, "shape %d: the word %lld has nothing", shape, (long long)at + i);
}

static void check_tables(void)
{
    for (int r = 0; r < size && relays; r++) {
        const struct epx_device_nodes *nodes = nodes_of(r);

        check_guards(&makers[r]);
        check_inside(&makers[r], nodes->relay, num_nodes);
        check_inside(&makers[r], nodes->ranks, nodes->size);
        check_inside(&makers[r], nodes->far, nodes->num_far);
        check_inside(&makers[r], nodes->served, nodes->num_served);
        check_inside(&makers[r], nodes->server, size);
        check_inside(&makers[r], nodes->index, size);
        check_inside(&makers[r], nodes->serves, size);
        check_inside(&makers[r], nodes->home_share, size);
        check_inside(&makers[r], nodes->relay_share, size);
    }
}

START_TEST(tables_are_whole_and_end_where_they_should)
{
    for_all_shapes(check_tables);
}
END_TEST

static void check_node(int rank)
{
    const struct epx_device_nodes *nodes = nodes_of(rank);

    EXPECT(nodes->num_nodes == num_nodes && nodes->own == node[rank] &&
               nodes->size == node_size[node[rank]] && nodes->num_far == size - nodes->size,
           "shape %d: rank %d", shape, rank);
    for (int r = 0; r < size; r++) {
        EXPECT(nodes->index[r] == place[r], "shape %d: rank %d has %d for %d", shape, rank,
               nodes->index[r], r);
        if (node[r] == node[rank])
            EXPECT(nodes->ranks[place[r]] == r, "shape %d: rank %d", shape, rank);
    }
}

static void check_nodes(void)
{
    for (int r = 0; r < size && relays; r++)
        check_node(r);
}

START_TEST(ranks_know_their_nodes)
{
    for_all_shapes(check_nodes);
}
END_TEST

/* Checks the relay by the formula of the manual page. */
static void check_relay(int home, int on)
{
    int relay = relay_of(home, on);

    if (on == node[home]) {
        EXPECT(relay == home, "shape %d: rank %d has %d", shape, home, relay);
        return;
    }
    EXPECT(relay >= 0 && relay < size && node[relay] == on &&
               place[relay] == place[home] % node_size[on],
           "shape %d: rank %d has %d on node %d", shape, home, relay, on);
}

static void check_relays(void)
{
    for (int home = 0; home < size && relays; home++)
        for (int on = 0; on < num_nodes; on++)
            check_relay(home, on);
}

START_TEST(a_home_has_a_relay_on_each_other_node)
{
    for_all_shapes(check_relays);
}
END_TEST

static void check_served(int rank, int home)
{
    const struct epx_device_nodes *nodes = nodes_of(rank);
    int at = nodes->serves[home];

    EXPECT(nodes->server[home] == relay_of(home, node[rank]),
           "shape %d: rank %d thinks that %d serves %d", shape, rank, nodes->server[home], home);
    if (!serves(rank, home))
        EXPECT(at == -1, "shape %d: rank %d thinks that it serves %d", shape, rank, home);
    else if (EXPECT(at >= 0 && at < nodes->num_served, "shape %d: rank %d has %d for %d", shape,
                    rank, at, home))
        EXPECT(nodes->served[at] == home, "shape %d: rank %d has %d as %d", shape, rank,
               nodes->served[at], at);
}

static void check_serving(void)
{
    for (int rank = 0; rank < size && relays; rank++) {
        EXPECT(nodes_of(rank)->num_served == num_served(rank), "shape %d: rank %d serves %d", shape,
               rank, nodes_of(rank)->num_served);
        for (int home = 0; home < size; home++)
            check_served(rank, home);
    }
}

START_TEST(homes_and_relays_agree)
{
    for_all_shapes(check_serving);
}
END_TEST

/* Checks that the far homes of a rank, from `at` on, are those that a relay of its node passes on
 * to it, in the order in which the relay has them. Returns where those of the next relay begin. */
static int check_run(int rank, int at)
{
    const struct epx_device_nodes *nodes = nodes_of(rank);
    int relay = nodes->server[nodes->far[at]], num = nodes_of(relay)->num_served;

    if (!EXPECT(num > 0 && at + num <= nodes->num_far, "shape %d: rank %d", shape, rank))
        return nodes->num_far;
    for (int i = 0; i < num; i++)
        EXPECT(nodes->far[at + i] == nodes_of(relay)->served[i] &&
                   (i == 0 || nodes->far[at + i] > nodes->far[at + i - 1]),
               "shape %d: rank %d has rows of %d as %d from relay %d, which sends those of %d",
               shape, rank, nodes->far[at + i], i, relay, nodes_of(relay)->served[i]);
    if (relay == rank)
        EXPECT(nodes->served == nodes->far + at, "shape %d: rank %d", shape, rank);
    return at + num;
}

static void check_far(void)
{
    for (int rank = 0; rank < size && relays; rank++) {
        int last = -1;

        for (int at = 0; at < nodes_of(rank)->num_far; at = check_run(rank, at)) {
            int relay = nodes_of(rank)->server[nodes_of(rank)->far[at]];

            EXPECT(relay > last, "shape %d: rank %d has relay %d after %d", shape, rank, relay,
                   last);
            last = relay;
        }
    }
}

START_TEST(rows_come_as_their_relays_send_them)
{
    for_all_shapes(check_far);
}
END_TEST

/* Checks the shares of what a rank exchanges without passing it on: each partner has one. */
static void check_shares(int rank, const int32_t *share, int is_home)
{
    int taken[MOST_RANKS] = {0};

    for (int r = 0; r < size; r++) {
        int partner = node[r] == node[rank] || (is_home ? serves(r, rank) : serves(rank, r));

        if (!partner)
            EXPECT(share[r] == -1, "shape %d: rank %d has a share for %d", shape, rank, r);
        else if (EXPECT(share[r] >= 0 && share[r] < nodes_of(rank)->shares,
                        "shape %d: rank %d has %d for %d", shape, rank, share[r], r))
            EXPECT(!taken[share[r]]++, "shape %d: rank %d has %d again", shape, rank, share[r]);
    }
}

static void check_all_shares(void)
{
    for (int rank = 0; rank < size && relays; rank++) {
        check_shares(rank, nodes_of(rank)->home_share, 1);
        check_shares(rank, nodes_of(rank)->relay_share, 0);
    }
}

START_TEST(partners_have_shares_of_their_own)
{
    for_all_shapes(check_all_shares);
}
END_TEST

/* The most rows that a rank passes on or is passed: each home has a token that needs as many ranks
 * of each node as it may. */
static int most_passed(int rank)
{
    int here = node_size[node[rank]], of_token = top_k < here ? top_k : here;
    int sent = num_served(rank) * of_token, got = size - here;

    return sent > got ? sent : got;
}

static int most_partners(int rank)
{
    int here = node_size[node[rank]], homes = num_served(rank), others = num_nodes - 1;

    return here + (homes > others ? homes : others);
}

static void check_room(void)
{
    int shares = 0, passed = 0;

    for (int r = 0; r < size && relays; r++) {
        shares = most_partners(r) > shares ? most_partners(r) : shares;
        passed = most_passed(r) > passed ? most_passed(r) : passed;
    }
    for (int r = 0; r < size && relays; r++)
        EXPECT(nodes_of(r)->shares == shares && nodes_of(r)->width == shares + passed,
               "shape %d: rank %d has %d, %d rows a token, want %d and %d more", shape, r,
               nodes_of(r)->shares, nodes_of(r)->width, shares, passed);
}

START_TEST(all_ranks_have_the_room_of_the_neediest)
{
    for_all_shapes(check_room);
}
END_TEST

static int num_equal;

/* Checks, where nodes are equal, that a stage has room for as many rows as epx_memory(7) says. */
static void check_equal(void)
{
    int equal = relays;

    for (int n = 0; n < num_nodes; n++)
        equal = equal && node_size[n] == node_size[0];
    num_equal += equal;
    if (equal)
        EXPECT(nodes_of(0)->width == size + num_nodes - 1,
               "shape %d: %d rows a token of %d ranks "
               "on %d nodes",
               shape, nodes_of(0)->width, size, num_nodes);
}

START_TEST(equal_nodes_take_a_row_for_each_rank_and_other_node)
{
    num_equal = 0;
    for_all_shapes(check_equal);
    EXPECT(num_equal >= SHAPES / NUM_KINDS / 2, "%d shapes of %d", num_equal, SHAPES);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("unit_nodes");
    TCase *tcase = tcase_create("nodes");

    tcase_add_test(tcase, without_relays_each_rank_has_a_share);
    tcase_add_test(tcase, tables_are_whole_and_end_where_they_should);
    tcase_add_test(tcase, ranks_know_their_nodes);
    tcase_add_test(tcase, a_home_has_a_relay_on_each_other_node);
    tcase_add_test(tcase, homes_and_relays_agree);
    tcase_add_test(tcase, rows_come_as_their_relays_send_them);
    tcase_add_test(tcase, partners_have_shares_of_their_own);
    tcase_add_test(tcase, all_ranks_have_the_room_of_the_neediest);
    tcase_add_test(tcase, equal_nodes_take_a_row_for_each_rank_and_other_node);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

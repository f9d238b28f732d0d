/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_nodes.c - who relays rows on device memory where nodes have several ranks: the tables that
 * kernels look up, and the room that the stages need. message_rows.cuh has the exchanges.
 */
#include "coll/device/staged/device_nodes.h"
#include "kernels/args/device_comm.h"
#include "kernels/node_rows.h"

enum { NUM_TABLES = 8 }; /* of at most R words each */

int epx_device_relays(const struct epx_comm *comm)
{
    return comm->num_nodes > 1 && comm->num_nodes < comm->size;
}

struct places {
    struct epx_nodes nodes;
    int32_t ranks[EPX_MOST_DEVICE_RANKS], index[EPX_MOST_DEVICE_RANKS];
    int32_t first[EPX_MOST_DEVICE_RANKS + 1];
};

static void find_places(const struct epx_comm *comm, struct places *places)
{
    struct epx_nodes nodes = {comm->num_nodes, comm->node[comm->rank], comm->node,
                              places->ranks,   places->first,          places->index};

    epx_nodes_order(comm->node, comm->num_nodes, comm->size, places->ranks);
    epx_nodes_place(&nodes, comm->size);
    places->nodes = nodes;
}

static int is_served(const struct epx_nodes *nodes, int32_t home, int32_t rank)
{
    return nodes->node[home] != nodes->node[rank] &&
           epx_relay(nodes, home, nodes->node[rank]) == rank;
}

static int32_t num_served(const struct epx_nodes *nodes, int32_t num_ranks, int32_t rank)
{
    int32_t num = 0;

    for (int32_t s = 0; s < num_ranks; s++)
        num += is_served(nodes, s, rank);
    return num;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/*
 * Finds the room that a stage needs for one token index, the most of any rank, so that all ranks
 * have the same rounds. Shares: a rank exchanges rows with the ranks of its node, and as a home
 * with a relay on each other node, as a relay with the homes that it serves. Behind the shares are
 * the rows that relays pass on: a relay sends each served home's row to at most as many ranks as a
 * token has choices; a rank gets such rows from all homes of other nodes.
 */
static void find_room(const struct epx_nodes *nodes, int32_t num_ranks, int32_t top_k,
                      struct epx_device_nodes *room)
{
    int32_t passed = 0;

    room->shares = 0;
    for (int32_t r = 0; r < num_ranks; r++) {
        int32_t size = epx_node_size(nodes, nodes->node[r]);
        int32_t served = num_served(nodes, num_ranks, r);

        room->shares = larger(room->shares, size + larger(nodes->num_nodes - 1, served));
        passed = larger(passed, larger(served * (top_k < size ? top_k : size), num_ranks - size));
    }
    room->width = room->shares + passed;
}

struct epx_device_nodes epx_device_nodes_of(const struct epx_comm *comm, int32_t top_k)
{
    struct epx_device_nodes nodes = {.width = comm->size};
    struct places places;

    if (!epx_device_relays(comm))
        return nodes;
    find_places(comm, &places);
    find_room(&places.nodes, comm->size, top_k, &nodes);
    nodes.num_nodes = comm->num_nodes;
    nodes.own = places.nodes.own;
    nodes.size = epx_node_size(&places.nodes, nodes.own);
    nodes.num_far = comm->size - nodes.size;
    nodes.num_served = num_served(&places.nodes, comm->size, comm->rank);
    return nodes;
}

int64_t epx_device_nodes_words(const struct epx_comm *comm)
{
    return epx_device_relays(comm) ? (int64_t)NUM_TABLES * comm->size : 0;
}

/* Returns the next table on the host, and sets *device to where it will lie on the device. */
static int32_t *next_table(int32_t **table, const int32_t **at, int32_t num_ranks,
                           const int32_t **device)
{
    int32_t *here = *table;

    *device = *at;
    *table += num_ranks;
    *at += num_ranks;
    return here;
}

/* Lists the homes of other nodes, by the ranks of this node that serve them. */
static void list_far(const struct epx_comm *comm, const struct epx_nodes *nodes,
                     struct epx_device_nodes *to, int32_t *far)
{
    int32_t num = 0;

    for (int32_t i = nodes->first[nodes->own]; i < nodes->first[nodes->own + 1]; i++) {
        if (nodes->ranks[i] == comm->rank)
            to->served = to->far + num;
        for (int32_t s = 0; s < comm->size; s++)
            if (is_served(nodes, s, nodes->ranks[i]))
                far[num++] = s;
    }
}

/* Numbers the shares: first the ranks of this node, by their place in it; then relays by node
 * (home_share), or served homes by rank (relay_share); -1 for all other ranks. */
static void share_out(const struct epx_comm *comm, const struct epx_nodes *nodes,
                      int32_t *home_share, int32_t *relay_share)
{
    int32_t size = epx_node_size(nodes, nodes->own), relays = size, homes = size;

    for (int32_t r = 0; r < comm->size; r++)
        home_share[r] = relay_share[r] = nodes->node[r] == nodes->own ? nodes->index[r] : -1;
    for (int32_t node = 0; node < nodes->num_nodes; node++)
        if (node != nodes->own)
            home_share[epx_relay(nodes, comm->rank, node)] = relays++;
    for (int32_t s = 0; s < comm->size; s++)
        if (is_served(nodes, s, comm->rank))
            relay_share[s] = homes++;
}

void epx_device_nodes_fill(const struct epx_comm *comm, struct epx_device_nodes *to, int32_t *table,
                           const int32_t *at)
{
    int32_t num_ranks = comm->size, served = 0;
    int32_t *relay = next_table(&table, &at, num_ranks, &to->relay);
    int32_t *ranks = next_table(&table, &at, num_ranks, &to->ranks);
    int32_t *far = next_table(&table, &at, num_ranks, &to->far);
    int32_t *server = next_table(&table, &at, num_ranks, &to->server);
    int32_t *index = next_table(&table, &at, num_ranks, &to->index);
    int32_t *serves = next_table(&table, &at, num_ranks, &to->serves);
    int32_t *home_share = next_table(&table, &at, num_ranks, &to->home_share);
    int32_t *relay_share = next_table(&table, &at, num_ranks, &to->relay_share);
    struct places places;
    const struct epx_nodes *nodes = &places.nodes;

    find_places(comm, &places);
    for (int32_t node = 0; node < nodes->num_nodes; node++)
        relay[node] = epx_relay(nodes, comm->rank, node);
    for (int32_t i = 0; i < to->size; i++)
        ranks[i] = nodes->ranks[nodes->first[nodes->own] + i];
    for (int32_t r = 0; r < num_ranks; r++) {
        server[r] = epx_relay(nodes, r, nodes->own);
        index[r] = nodes->index[r];
        serves[r] = is_served(nodes, r, comm->rank) ? served++ : -1;
    }
    list_far(comm, nodes, to, far);
    share_out(comm, nodes, home_share, relay_share);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * edges.c - where the words of edges lie. The lines of a graph are cut from a board, a window that
 * many graphs share, so that a graph takes memory for its own edges alone. They are zeroed while
 * nobody writes to them: a graph is made after everything in flight is complete on all ranks, and
 * all words that are written for an operation are read, or overwritten, before the next graph.
 */
#include "coll/direct/edges.h"

#include <stdlib.h>
#include <string.h>

#include "core/agree.h"

enum { BOARD_BYTES = 1 << 18, BOARD_SHIFT = 40 };

/* A piece of a board that a graph has; pieces are listed by their place. */
struct piece {
    size_t at, bytes;
    struct epx_edges *edges; /* of the graph */
    struct piece *next;
};

struct epx_board {
    struct epx_window *window;
    int number; /* the same on all ranks */
    struct piece *pieces;
    struct epx_board *next;
};

size_t epx_edges_bytes(int num_sources, int num_destinations)
{
    return (size_t)num_sources * sizeof(struct epx_head_lines) +
           (size_t)num_destinations * sizeof(struct epx_tail_lines);
}

static struct epx_head_lines *heads(char *lines)
{
    return (struct epx_head_lines *)(void *)lines;
}

static struct epx_tail_lines *tails(char *lines, int num_sources)
{
    return (struct epx_tail_lines *)(void *)(heads(lines) + num_sources);
}

static int make_arrays(const struct epx_graph *graph, struct epx_edges *edges)
{
    struct epx_arrays *all = &edges->arrays;
    int64_t in = graph->sources.num, out = graph->destinations.num;

    EPX_ARRAY(all, edges->in, in);
    EPX_ARRAY(all, edges->out, out);
    EPX_ARRAY(all, edges->counts, 2 * (in + out));
    EPX_FAIL_IF(all->failed, EPX_ERR_NO_MEM, "no memory for %lld edges", (long long)(in + out));
    return EPX_SUCCESS;
}

void epx_edges_note_error(struct epx_edges *edges, int error)
{
    if (edges->error)
        return;
    edges->error = error;
    memcpy(edges->message, epx_status_message(), sizeof(edges->message));
}

void epx_edges_free(struct epx_edges *edges)
{
    if (!edges)
        return;
    free(edges->told);
    epx_arrays_free(&edges->arrays);
    free(edges);
}

static int create(const struct epx_graph *graph, struct epx_edges **result)
{
    struct epx_edges *edges = epx_memory_zeroed(1, sizeof(*edges));

    EPX_FAIL_IF(!edges, EPX_ERR_NO_MEM, "no memory for the edges of a graph");
    *result = edges;
    return make_arrays(graph, edges);
}

/* Sets the addresses of an edge that ends here, and of one that begins here: own and other are
 * where the lines of the two ranks begin. */
static void place_in(struct epx_edges *edges, int i, char *own, char *other, int other_sources,
                     int place)
{
    edges->in[i].own = heads(own) + i;
    edges->in[i].other = tails(other, other_sources) + place;
}

int epx_edges_of_everyone(struct epx_direct *direct)
{
    const struct epx_comm *comm = direct->comm;
    const size_t at = epx_direct_end(direct);
    char **address = direct->window->address;
    struct epx_edges *edges;

    EPX_TRY(create(comm->everyone, &direct->everyone));
    edges = direct->everyone;
    for (int r = 0; r < comm->size; r++) {
        char *own = address[comm->rank] + at, *other = address[r] + at;

        place_in(edges, r, own, other, comm->size, comm->rank);
        edges->out[r].own = tails(own, comm->size) + r;
        edges->out[r].other = heads(other) + comm->rank;
    }
    return EPX_SUCCESS;
}

/* The first place of a board with so many free bytes; SIZE_MAX = there is none. *link is where the
 * piece belongs in the list. */
static size_t find_room(struct epx_board *board, size_t bytes, struct piece ***link)
{
    size_t at = 0;

    *link = &board->pieces;
    while (**link && (**link)->at - at < bytes) {
        at = (**link)->at + (**link)->bytes;
        *link = &(**link)->next;
    }
    return **link || board->window->own_bytes - at >= bytes ? at : SIZE_MAX;
}

/* Takes room for the lines of a graph, if a board has it. */
static int take_room(struct epx_direct *direct, struct epx_edges *edges, int *took)
{
    size_t bytes = edges->board_bytes, at = SIZE_MAX;
    struct epx_board *board = direct->boards;
    struct piece **link, *piece;

    while (board && (at = find_room(board, bytes, &link)) == SIZE_MAX)
        board = board->next;
    *took = board != NULL;
    if (!board)
        return EPX_SUCCESS;
    piece = epx_memory_zeroed(1, sizeof(*piece));
    EPX_FAIL_IF(!piece, EPX_ERR_NO_MEM, "no memory for the edges of a graph");
    *piece = (struct piece){at, bytes, edges, *link};
    *link = piece;
    edges->board = board;
    edges->board_at = at;
    memset(board->window->own + at, 0, bytes);
    return EPX_SUCCESS;
}

static void give_room_back(struct epx_edges *edges)
{
    struct piece **link, *piece;

    if (!edges->board)
        return;
    link = &edges->board->pieces;
    while ((*link)->at != edges->board_at)
        link = &(*link)->next;
    piece = *link;
    *link = piece->next;
    free(piece);
    edges->board = NULL;
}

/* Collective, agreed: another board, with room for the lines of any rank. */
static int add_board(struct epx_direct *direct, const struct epx_edges *edges)
{
    struct epx_transport *transport = direct->comm->transport;
    struct epx_board *board = epx_memory_zeroed(1, sizeof(*board));
    int64_t most;
    int rc = epx_comm_agree(
        direct->comm, board ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for a board"));

    if (rc == EPX_SUCCESS)
        rc = epx_comm_max(direct->comm, (int64_t)edges->board_bytes, &most);
    if (rc == EPX_SUCCESS)
        rc = epx_transport_window_create(
            transport, (size_t)(most > BOARD_BYTES ? most : BOARD_BYTES), &board->window);
    if (rc != EPX_SUCCESS) {
        free(board);
        return rc;
    }
    board->number = direct->num_boards++;
    board->next = direct->boards;
    direct->boards = board;
    return EPX_SUCCESS;
}

/* Collective, agreed. A piece of no bytes is one, too. */
static int place_lines(struct epx_direct *direct, struct epx_edges *edges)
{
    int64_t lacks;
    int took, rc = take_room(direct, edges, &took);

    EPX_TRY(epx_comm_agree(direct->comm, rc));
    EPX_TRY(epx_comm_max(direct->comm, !took, &lacks));
    if (!lacks)
        return EPX_SUCCESS;
    EPX_TRY(add_board(direct, edges));
    if (!took)
        rc = take_room(direct, edges, &took);
    return epx_comm_agree(direct->comm, rc);
}

/* Where the lines of a rank begin, from what it told: its board, its place there, and behind it in
 * the next word the number of its sources. */
static char *lines_of(const struct epx_direct *direct, const int64_t *told, int rank)
{
    const struct epx_board *board = direct->boards;

    while (board->number != told[2 * rank] >> BOARD_SHIFT)
        board = board->next;
    return board->window->address[rank] + (told[2 * rank] & (((int64_t)1 << BOARD_SHIFT) - 1));
}

/* Pairs edges to a rank with edges from it, which both ranks do alike. */
static void pair_edges(const struct epx_graph *graph)
{
    const struct epx_ends *in = &graph->sources, *out = &graph->destinations;
    struct epx_edges *edges = graph->edges;

    for (int i = 0; i < in->num; i++)
        edges->in[i].back = -1;
    for (int o = 0; o < out->num; o++)
        edges->out[o].back = -1;
    for (int p = 0; p < graph->peers.num; p++)
        for (int i = graph->peers.source[p], o = graph->peers.destination[p]; i >= 0 && o >= 0;
             i = in->next[i], o = out->next[o]) {
            edges->in[i].back = o;
            edges->out[o].back = i;
        }
}

static void connect(const struct epx_direct *direct, const struct epx_graph *graph)
{
    struct epx_edges *edges = graph->edges;
    const struct epx_ends *in = &graph->sources, *out = &graph->destinations;
    char *own = edges->board->window->own + edges->board_at;

    for (int i = 0; i < in->num; i++) {
        char *other = lines_of(direct, edges->told, in->rank[i]);

        place_in(edges, i, own, other, (int)edges->told[2 * in->rank[i] + 1], in->place[i]);
    }
    for (int i = 0; i < out->num; i++) {
        char *other = lines_of(direct, edges->told, out->rank[i]);

        edges->out[i].own = tails(own, in->num) + i;
        edges->out[i].other = heads(other) + out->place[i];
    }
    pair_edges(graph);
}

/* Collective, agreed: each rank tells where its lines are. */
static int exchange_places(struct epx_direct *direct, struct epx_graph *graph)
{
    struct epx_edges *edges = graph->edges;
    struct epx_comm *comm = direct->comm;
    size_t ranks = (size_t)comm->size;
    int64_t *own;

    edges->told = epx_memory_zeroed(2 * ranks + 2, sizeof(*edges->told));
    EPX_TRY(epx_comm_agree(comm, edges->told
                                     ? EPX_SUCCESS
                                     : epx_fail(EPX_ERR_NO_MEM, "no memory for %zu ranks", ranks)));
    own = edges->told + 2 * ranks;
    own[0] = (int64_t)edges->board->number << BOARD_SHIFT | (int64_t)edges->board_at;
    own[1] = graph->sources.num;
    EPX_TRY(epx_comm_allgather_bytes(comm, own, 2 * (int)sizeof(*own), edges->told));
    connect(direct, graph);
    free(edges->told);
    edges->told = NULL;
    return EPX_SUCCESS;
}

static void graph_free(struct epx_graph *graph)
{
    if (!graph->edges)
        return;
    give_room_back(graph->edges);
    epx_edges_free(graph->edges);
}

int epx_graph_create_direct(struct epx_graph *graph)
{
    struct epx_comm *comm = graph->comm;
    struct epx_direct *direct = comm->transport->direct;

    graph->ground_free = graph_free;
    EPX_TRY(epx_comm_agree(comm, create(graph, &graph->edges)));
    graph->edges->board_bytes = epx_edges_bytes(graph->sources.num, graph->destinations.num);
    EPX_TRY(place_lines(direct, graph->edges));
    return exchange_places(direct, graph);
}

/* Requests may hold graphs that their communicator does not have any more. */
static void take_from_graphs(struct epx_board *board)
{
    while (board->pieces)
        give_room_back(board->pieces->edges);
}

void epx_boards_free(const struct epx_transport *transport)
{
    struct epx_direct *direct = transport->direct;

    while (direct->boards) {
        struct epx_board *board = direct->boards;

        direct->boards = board->next;
        take_from_graphs(board);
        epx_transport_window_free(transport, board->window);
        free(board);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_ucx.c - collectives by UCX: ranks of a node store into each other's memory, ranks of
 * different nodes send messages.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/jitter.h"
#include "core/agree.h"
#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_links.h"

/*
 * One collective at a time, numbered from 1 by every rank alike. In each, every rank gives every
 * other one block, empty ones too, and ends when all its blocks are given and taken. So no rank
 * is more than one collective ahead of another, and what is early belongs to the next.
 *
 * Ranks that map each other's memory (a part: a board, two cells for each source, two stages):
 *   ready    on the board, written by its owner: the last collective for which its stages may be
 *            stored into. Release, after what it read from them; a source acquires it before it
 *            stores there. The next number is ready as soon as a collective is begun that leaves
 *            the stages alone, else when the place of its blocks is asked for.
 *   cell     of a source, one for odd numbers and one for even, written by it alone: a block of
 *            an allgather or alltoall that is short enough. Its reader is through with number
 *            n - 2 before the source is in n.
 *   arrived  in the cell: the number whose block is in the cell, or of an alltoallv at the
 *            source's place in the stage. Release, after the block, whose stores past the caches
 *            were fenced by whoever made them; its reader acquires it.
 * All other blocks are messages that carry their source and number, which counts the messages from
 * one rank to another: in each exchange two ranks send each other one, or neither does.
 * Invariant: ready and arrived only grow, in a cell by two; a place in a stage is stored into only
 * between its owner's ready and the source's arrived for that number.
 */
enum { CELL_BYTES = 4096 };

struct board {
    _Alignas(EPX_LINE_BYTES) _Atomic uint64_t ready;
};

struct cell {
    _Alignas(EPX_LINE_BYTES) _Atomic uint64_t arrived;
    char block[CELL_BYTES - sizeof(uint64_t)];
};

/* Where the blocks of the ranks are, on one side of a collective, or of an exchange of some ranks:
 * then the i-th rank's block is the i-th. */
struct blocks {
    char *base;
    const int *counts, *displs; /* of an alltoallv; NULL = each block has `bytes`, `stride` apart */
    int bytes, stride;
};

struct ucx {
    struct epx_comm *comm;
    struct epx_links *links;
    char *part, **parts; /* this rank's, NULL before ucx_stages; parts: [R] as mapped here, NULL
                          * for ranks reached by messages */
    size_t stage_bytes;
    uint64_t number, ready;
    uint64_t *messages;                    /* [R] messages to each rank, as many as from it */
    struct epx_some_ranks everyone, ranks; /* those of the exchange under way */
    int some;                              /* it is no collective: all blocks are messages */
    struct blocks out, in;
    int *all_ranks; /* [R] */
    char *taken;    /* [ranks] */
};

static size_t stages_offset(const struct ucx *ucx)
{
    size_t bytes = sizeof(struct board) + 2 * (size_t)ucx->comm->size * sizeof(struct cell);

    return (bytes + EPX_PAGE_BYTES - 1) / EPX_PAGE_BYTES * EPX_PAGE_BYTES;
}

static struct board *board_of(char *part)
{
    return (struct board *)(void *)part;
}

static struct cell *cell_of(char *part, int source, uint64_t number)
{
    struct cell *cells = (struct cell *)(void *)(part + sizeof(struct board));

    return &cells[2 * source + (int)(number % 2)];
}

static size_t block_bytes(const struct blocks *blocks, int rank)
{
    return (size_t)(blocks->counts ? blocks->counts[rank] : blocks->bytes);
}

static char *block_at(const struct blocks *blocks, int rank)
{
    return blocks->base +
           (blocks->displs ? blocks->displs[rank] : (ptrdiff_t)rank * blocks->stride);
}

static int is_short(size_t bytes)
{
    return bytes <= sizeof(((struct cell *)NULL)->block);
}

/* Whether what goes to or comes from a rank is a message. */
static int is_message(const struct ucx *ucx, const struct blocks *blocks, int rank)
{
    return ucx->some || !ucx->parts[rank] ||
           (!blocks->counts && !is_short(block_bytes(blocks, rank)));
}

static void publish_ready(struct ucx *ucx, uint64_t number)
{
    if (!ucx->part || ucx->ready >= number)
        return;
    ucx->ready = number;
    atomic_store_explicit(&board_of(ucx->part)->ready, number, memory_order_release);
}

static int ucx_usable(struct epx_comm *comm, char *why)
{
    return epx_ucx_usable(comm, why);
}

static void ucx_free(void *state)
{
    struct ucx *ucx = state;

    epx_links_free(ucx->links);
    free(ucx->parts);
    free(ucx->taken);
    free(ucx->messages);
    free(ucx->all_ranks);
}

static int make_arrays(struct ucx *ucx, size_t ranks)
{
    ucx->parts = epx_memory_zeroed(ranks, sizeof(*ucx->parts));
    ucx->taken = epx_memory_zeroed(ranks, sizeof(*ucx->taken));
    ucx->messages = epx_memory_zeroed(ranks, sizeof(*ucx->messages));
    ucx->all_ranks = epx_memory_zeroed(ranks, sizeof(*ucx->all_ranks));
    EPX_FAIL_IF(!ucx->parts || !ucx->taken || !ucx->messages || !ucx->all_ranks, EPX_ERR_NO_MEM,
                "no memory for transport ucx");
    for (size_t r = 0; r < ranks; r++)
        ucx->all_ranks[r] = (int)r;
    ucx->everyone = (struct epx_some_ranks){(int)ranks, ucx->all_ranks};
    return EPX_SUCCESS;
}

static int ucx_create(struct epx_transport *transport)
{
    struct ucx *ucx = transport->state;
    struct epx_comm *comm = transport->comm;
    size_t ranks = (size_t)comm->size;

    ucx->comm = comm;
    EPX_TRY(epx_comm_agree(comm, make_arrays(ucx, ranks)));
    EPX_TRY(epx_links_create(comm, &ucx->links));
    transport->liveness = (struct epx_liveness){&epx_links_liveness, ucx->links};
    return EPX_SUCCESS;
}

static int ucx_stages(void *state, size_t bytes, char **home_stage, char **expert_stage)
{
    struct ucx *ucx = state;

    ucx->stage_bytes = (bytes + EPX_PAGE_BYTES - 1) / EPX_PAGE_BYTES * EPX_PAGE_BYTES;
    EPX_TRY(epx_links_share(ucx->links, stages_offset(ucx) + 2 * ucx->stage_bytes, &ucx->part,
                            ucx->parts));
    *home_stage = ucx->part + stages_offset(ucx);
    *expert_stage = *home_stage + ucx->stage_bytes;
    return EPX_SUCCESS;
}

static char *ucx_place(void *state, int rank, char *from, char *into)
{
    struct ucx *ucx = state;
    char *part = ucx->parts[rank];

    if (rank == ucx->comm->rank)
        return into;
    publish_ready(ucx, ucx->number + 1);
    if (!part)
        return from;
    if (atomic_load_explicit(&board_of(part)->ready, memory_order_acquire) <= ucx->number)
        return NULL;
    return part + (into - ucx->part);
}

static char *ucx_mapped(void *state, int rank, char *own)
{
    struct ucx *ucx = state;

    return ucx->parts[rank] ? ucx->parts[rank] + (own - ucx->part) : NULL;
}

/* Gives the i-th rank its block. */
static void give(struct ucx *ucx, int i)
{
    int rank = ucx->ranks.rank[i];
    const char *from = block_at(&ucx->out, i);
    size_t bytes = block_bytes(&ucx->out, i);
    struct cell *cell;

    if (is_message(ucx, &ucx->out, rank)) {
        epx_links_send(ucx->links, rank, ++ucx->messages[rank], from, bytes);
        return;
    }
    cell = cell_of(ucx->parts[rank], ucx->comm->rank, ucx->number);
    if (!ucx->out.counts)
        memcpy(cell->block, from, bytes);
    epx_jitter();
    atomic_store_explicit(&cell->arrived, ucx->number, memory_order_release);
}

/* Whether the block of the i-th rank has come. */
static int take(struct ucx *ucx, int i)
{
    int rank = ucx->ranks.rank[i];
    size_t bytes = block_bytes(&ucx->in, i);
    char *to = block_at(&ucx->in, i);
    const struct cell *cell;

    if (is_message(ucx, &ucx->in, rank))
        return epx_links_receive(ucx->links, rank);
    cell = cell_of(ucx->part, rank, ucx->number);
    if (atomic_load_explicit(&cell->arrived, memory_order_acquire) != ucx->number)
        return 0;
    if (!ucx->in.counts)
        memcpy(to, cell->block, bytes);
    return 1;
}

/* The i-th rank after this one in the order in which blocks are given. */
static int turn(const struct ucx *ucx, int i)
{
    return ucx->some ? i : (ucx->comm->rank + i) % ucx->comm->size;
}

/* Gives all blocks, and says where those go that come in messages. */
static void give_all(struct ucx *ucx)
{
    int self = ucx->comm->rank;

    for (int i = 0; i < ucx->ranks.num; i++)
        if (ucx->ranks.rank[turn(ucx, i)] != self)
            give(ucx, turn(ucx, i));
    for (int i = 0; i < ucx->ranks.num; i++) {
        int rank = ucx->ranks.rank[i];

        if (rank != self && is_message(ucx, &ucx->in, rank))
            epx_links_expect(ucx->links, rank, ucx->messages[rank], block_at(&ucx->in, i),
                             block_bytes(&ucx->in, i));
    }
}

static int start(struct ucx *ucx, struct blocks out, struct blocks in)
{
    int self = ucx->comm->rank;

    ucx->number++;
    ucx->some = 0;
    ucx->ranks = ucx->everyone;
    ucx->out = out;
    ucx->in = in;
    memset(ucx->taken, 0, (size_t)ucx->comm->size);
    ucx->taken[self] = 1;
    if (!out.counts)
        publish_ready(ucx, ucx->number + 1);
    if (!out.counts || !ucx->part) /* else ucx_place had it written where it goes */
        memcpy(block_at(&in, self), block_at(&out, self), block_bytes(&out, self));
    give_all(ucx);
    return EPX_SUCCESS;
}

static int ucx_allgather(void *state, const void *send, void *recv, int bytes)
{
    return start(state, (struct blocks){.base = (char *)send, .bytes = bytes},
                 (struct blocks){.base = recv, .bytes = bytes, .stride = bytes});
}

static int ucx_alltoall(void *state, const void *send, void *recv, int bytes)
{
    return start(state, (struct blocks){.base = (char *)send, .bytes = bytes, .stride = bytes},
                 (struct blocks){.base = recv, .bytes = bytes, .stride = bytes});
}

static int ucx_alltoallv(void *state, struct epx_blocks send, struct epx_blocks recv)
{
    return start(state,
                 (struct blocks){.base = send.base, .counts = send.counts, .displs = send.displs},
                 (struct blocks){.base = recv.base, .counts = recv.counts, .displs = recv.displs});
}

static int ucx_exchange(void *state, struct epx_some_ranks ranks, struct epx_blocks send,
                        struct epx_blocks recv)
{
    struct ucx *ucx = state;

    ucx->some = 1;
    ucx->ranks = ranks;
    ucx->out = (struct blocks){.base = send.base, .counts = send.counts, .displs = send.displs};
    ucx->in = (struct blocks){.base = recv.base, .counts = recv.counts, .displs = recv.displs};
    for (int i = 0; i < ranks.num; i++)
        ucx->taken[i] = ranks.rank[i] == ucx->comm->rank;
    give_all(ucx);
    return EPX_SUCCESS;
}

static int ucx_done(void *state, int *done)
{
    struct ucx *ucx = state;
    int all = 1;

    for (int i = 0; i < ucx->ranks.num; i++) {
        ucx->taken[i] = ucx->taken[i] || take(ucx, i);
        all &= ucx->taken[i];
    }
    *done = all && !epx_links_in_flight(ucx->links);
    return EPX_SUCCESS;
}

static int ucx_came(void *state, int rank)
{
    const struct ucx *ucx = state;

    return ucx->taken[rank];
}

/* Memory of the user is private. Late peers store into shared memory that ends with the worker. */
static int ucx_window_fence(void *state, struct epx_window *window)
{
    (void)state;
    (void)window;
    return EPX_SUCCESS;
}

static const struct epx_message_ops ucx_messages = {
    .allgather = ucx_allgather,
    .alltoall = ucx_alltoall,
    .alltoallv = ucx_alltoallv,
    .exchange = ucx_exchange,
    .done = ucx_done,
    .stages = ucx_stages,
    .place = ucx_place,
    .mapped = ucx_mapped,
    .came = ucx_came,
};

const struct epx_transport_ops epx_transport_ucx = {
    .memory = EPX_MEMORY_SYSTEM,
    .threads = 1,
    .usable = ucx_usable,
    .state_bytes = sizeof(struct ucx),
    .create = ucx_create,
    .free = ucx_free,
    .window_fence = ucx_window_fence,
    .messages = &ucx_messages,
};

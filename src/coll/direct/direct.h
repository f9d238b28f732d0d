/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.h - the ground that the direct algorithms stand on, on host memory: ready words, flags
 * and rings in each other's windows. direct.c explains the protocol.
 */
#ifndef EPX_COLL_DIRECT_DIRECT_H
#define EPX_COLL_DIRECT_DIRECT_H

#include <stdatomic.h>

#include "coll/ground.h"
#include "core/ready.h"
#include "kernels/host/host_kernels.h"

/* A position in the list of rows that go to or come from one rank. */
struct epx_cursor {
    int64_t row;
    int64_t segment;
};

struct epx_board;
struct epx_edges;

struct epx_direct {
    struct epx_comm *comm;
    struct epx_arrays arrays; /* all those below */
    struct epx_window *window;
    int64_t ring_bytes;

    /* the operation at the head of the queue */
    struct epx_segments cut;
    int64_t slot_bytes, num_slots;
    struct epx_ready *ready; /* [R] */
    struct epx_plan *plan;
    struct epx_home_rows home;
    struct epx_expert_rows expert;
    struct epx_cursor *to, *from; /* [R] */
    int64_t token, token_segment;
    int bypasses;                     /* rows stored into others' buffers bypass the caches */
    char *(*buffers)[EPX_MAX_FIELDS]; /* [R] receive buffers of a rank that can be stored into, one
                                         a field; the first is NULL = take the ring */
    struct epx_edges *everyone;       /* alltoallv: those between all ranks */
    struct epx_board *boards;         /* alltoallv: where the lines of graphs lie */
    int num_boards;

    /* counted since the communicator was made, never reset */
    uint64_t *pushed, *popped; /* [R] slots put into each rank's ring, taken from each own ring */
    uint64_t *push_base, *pop_base; /* [R] pushed and popped when the operation began */
    double *sums;                   /* [R][EPX_MAX_TOP_K] */
};

/* The operations of struct epx_ground; the window has more bytes for edges, from epx_direct_end
 * on. */
int epx_direct_create(struct epx_transport *transport, size_t more_bytes);
void epx_direct_free(struct epx_transport *transport);
int epx_route_tokens_direct(struct epx_request *request, int *moved);
int epx_dispatch_direct(struct epx_request *request, int *moved);
int epx_combine_direct(struct epx_request *request, int *moved);
int epx_alltoallv_direct(struct epx_request *request, int *moved);

size_t epx_direct_end(const struct epx_direct *direct);
struct epx_direct *epx_direct_of(const struct epx_request *request);

/*
 * Tells all ranks what this rank is about to do, and that it is through with all earlier
 * operations. Once all ranks are ready, sets *moved, goes to the verb's first phase and returns the
 * error of their agreement.
 */
int epx_direct_handshake(struct epx_request *request, int *weighted, int *moved);
/* lacks of struct epx_ground: where ready words are awaited, each rank that has not sent them. */
int epx_direct_lacks(const struct epx_request *request, int rank);
/* Begins to move rows of this length; puts the cursors at their start. */
void epx_direct_begin(struct epx_direct *direct, int64_t row_bytes);
/* Begins to move bytes, in slots that suit any number of them, by the rings that epx_ring_begin is
 * called for: to a rank, and from a rank. */
void epx_direct_begin_bytes(struct epx_direct *direct);
static inline void epx_ring_begin(struct epx_direct *direct, int rank)
{
    direct->push_base[rank] = direct->pushed[rank];
    direct->pop_base[rank] = direct->popped[rank];
}
/* Counts a word that is posted for a rank. */
static inline void epx_direct_count(struct epx_direct *direct, int rank)
{
    direct->comm->stats.messages += rank != direct->comm->rank;
}

/* "All that I stored into your buffers for this operation is there." */
void epx_direct_post_arrival(struct epx_direct *direct, const struct epx_request *request,
                             int rank);
int epx_direct_arrived(const struct epx_direct *direct, const struct epx_request *request,
                       int rank);

/* "My counts for this routing are in your matrix." */
void epx_direct_post_counted(struct epx_direct *direct, const struct epx_request *request,
                             int rank);
int epx_direct_counted(const struct epx_direct *direct, const struct epx_request *request,
                       int rank);

/* Ring to a rank: the next free slot, NULL if there is none; then push; publish shows pushes. */
char *epx_ring_claim(struct epx_direct *direct, int rank);
void epx_ring_push(struct epx_direct *direct, int rank);
void epx_ring_publish(struct epx_direct *direct, int rank);
/* Ring from a rank: the next full slot, NULL if there is none; then pop; release shows pops. */
const char *epx_ring_peek(const struct epx_direct *direct, int rank);
void epx_ring_pop(struct epx_direct *direct, int rank);
void epx_ring_release(struct epx_direct *direct, int rank);

/* Moves a cursor to the next segment of the operation's cut. */
void epx_cursor_step(struct epx_cursor *cursor, struct epx_segments cut);

/* Bytes that one step of an operation moves for one rank before it looks at the others. */
enum { EPX_DIRECT_STRIDE = 1 << 18 };
/* Bytes of a slot where a ring moves bytes, not rows. */
enum { EPX_DIRECT_PIECE = 1 << 15 };

#endif

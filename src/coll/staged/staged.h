/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staged.h - the ground that the staged algorithms stand on: ready words by allgather, and rows
 * packed by rank through two bounded stages, block by block. staged.c explains the blocks.
 */
#ifndef EPX_COLL_STAGED_STAGED_H
#define EPX_COLL_STAGED_STAGED_H

#include "coll/ground.h"
#include "core/ready.h"
#include "kernels/host/host_kernels.h"

struct epx_staged {
    struct epx_comm *comm;
    struct epx_arrays arrays;               /* all those below */
    const struct epx_message_ops *messages; /* of the transport, with its state */
    void *state;
    int hier;            /* for hier: `stages` and `place` of the transport are not used */
    int64_t stage_bytes; /* of each of the two stages */
    int64_t share_bytes; /* each rank's part of a stage, at the same displacement on all ranks */
    char *home_stage, *expert_stage;
    char **home_at, **expert_at;     /* [R] also in the block: where rows for and from a rank are */
    struct epx_stage_stores *stores; /* [R] also in the block; combine does not use it */

    /* the operation at the head of the queue */
    struct epx_ready own, *ready; /* [R] */
    int64_t posted_ns;            /* when `own` was sent; 0 where the transport tells who came */
    struct epx_waits_told told;   /* of the last handshake, where it does not */
    struct epx_segments cut;
    int64_t weight_bytes; /* of a row's pair weights, which follow its first segment */
    const struct epx_plan *plan;
    struct epx_home_rows home;
    struct epx_expert_rows expert;
    struct epx_block block;
    int32_t per_round; /* tokens, records or rows of each rank in one exchange */
    int32_t most_tokens, next_token;
    int32_t block_tokens;           /* for own.block_tokens, by hier */
    int64_t round, num_rounds;      /* routing, which has no tokens */
    int64_t *home_row;              /* [R] of the block */
    struct epx_peer_rows *everyone; /* alltoallv: the rows of all ranks */

    int *home_counts, *expert_counts, *displs; /* [R] bytes */
    int stale;    /* the stages have the rows of an exchange that is over */
    double *sums; /* [R][EPX_MAX_TOP_K] */
};

/* The operations of struct epx_ground; hier: for the hierarchical algorithms. */
int epx_staged_create(struct epx_transport *transport, int hier);
void epx_staged_free(struct epx_transport *transport);
int epx_route_tokens_staged(struct epx_request *request, int *moved);
int epx_move_staged(struct epx_request *request, int *moved);
int epx_alltoallv_staged(struct epx_request *request, int *moved);
int epx_graph_create_staged(struct epx_graph *graph);

struct epx_graph;

/* lacks of struct epx_ground, for hier too: waiting_for, else each rank whose block of the exchange
 * under way has not come, if the transport knows. */
int epx_staged_lacks(const struct epx_request *request, int rank);

struct epx_staged *epx_staged_of(const struct epx_request *request);

/* The handshake, as epx_direct_handshake does it. Nothing else is started before the ranks
 * agree. */
int epx_staged_handshake(struct epx_request *request, int *weighted, int *moved);
/* Sets *moved when all that was started has ended. */
int epx_staged_done(struct epx_staged *staged, int *moved);

/* Before the stages are written to: poisons the rows of an exchange that is over. */
void epx_staged_forget(struct epx_staged *staged);
/* Counts what is sent to so many other ranks. */
void epx_staged_count(const struct epx_staged *staged, int ranks);

/* Begins to move the rows of a routing, with the first block as the next one. A token has at most
 * rows_per_token rows in a stage. */
void epx_staged_begin(struct epx_staged *staged, const struct epx_request *request,
                      int rows_per_token, int weighted);
int epx_staged_has_block(const struct epx_staged *staged);
/* Finds the rows of the next block, or of its next segment, where there is one. */
void epx_staged_find_block(struct epx_staged *staged);

/* Bytes of the pair weights that follow a row. */
int64_t epx_staged_weight_bytes(const struct epx_plan *plan);
/* Rows that fit into a rank's share. */
int64_t epx_staged_rows(const struct epx_staged *staged, int64_t row_stride);

/*
 * An exchange: measure finds its bytes from the rows of the block; claim finds where to write the
 * rows for each rank, 0 = not yet; once they are written send starts it, and epx_staged_done tells
 * its end.
 */
enum epx_direction { EPX_TO_EXPERTS, EPX_TO_HOMES };
enum epx_direction epx_direction_of(const struct epx_request *request);
void epx_staged_measure(struct epx_staged *staged);
int epx_staged_claim(struct epx_staged *staged, enum epx_direction direction);
int epx_staged_send(struct epx_staged *staged, enum epx_direction direction);
/* epx_staged_send with the caller's places: rows of experts at expert_rows, displacements in
 * bytes. */
int epx_staged_exchange(struct epx_staged *staged, enum epx_direction direction, char *expert_rows,
                        const int *home_displs, const int *expert_displs);

/* A block goes in three steps, which are the phases of a request from EPX_PHASE_VERB on: `ready`
 * sets *moved once the step can be taken, or completes the request; `act`, NULL = nothing, takes
 * it. What a routing does before its blocks has phases from EPX_PHASE_ROUTING on. */
struct epx_step {
    int (*ready)(struct epx_request *request, int *moved);
    int (*act)(struct epx_request *request);
};
enum { EPX_BLOCK_STEPS = 3, EPX_PHASE_ROUTING = EPX_PHASE_VERB + EPX_BLOCK_STEPS };
int epx_staged_step(struct epx_request *request, const struct epx_step steps[EPX_BLOCK_STEPS],
                    int *moved);
/* What may be ready: places for the rows of a block, and all of an exchange. */
int epx_staged_may_fill(struct epx_request *request, int *moved);
int epx_staged_has_come(struct epx_request *request, int *moved);

#endif

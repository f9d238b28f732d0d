/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * staged.h - the ground that the staged algorithms stand on: ready words by allgather, and rows
 * packed by rank through two bounded stages, block by block. staged.c explains the blocks.
 */
#ifndef EPX_COLL_STAGED_H
#define EPX_COLL_STAGED_H

#include "kernels/kernels.h"
#include "ready.h"
#include "transport.h"

struct epx_staged {
    struct epx_comm *comm;
    const struct epx_transport *transport;
    int64_t stage_bytes; /* of each of the two stages */
    char *home_stage, *expert_stage;

    /* the operation at the head of the queue */
    struct epx_ready own, *ready; /* [R] */
    struct epx_segments cut;
    const struct epx_plan *plan;
    struct epx_home_rows home;
    struct epx_expert_rows expert;
    struct epx_block block;
    int32_t per_round; /* tokens, records or rows of each rank in one exchange */
    int32_t most_tokens, next_token;
    int64_t *home_at, *expert_at; /* [R], shown by the block */
    int64_t round, num_rounds;    /* routing and alltoallv, which have no tokens */
    int64_t *counts_in, *counts_out; /* [R] alltoallv: rows from and for each rank */

    int *home_counts, *home_displs, *expert_counts, *expert_displs; /* [R] bytes */
    double *sums; /* [R][EPX_MAX_TOP_K] */
};

/* Collective, agreed. */
int epx_staged_create(struct epx_comm *comm, const struct epx_transport *transport,
                      struct epx_staged **staged);
/* Local. */
void epx_staged_free(struct epx_staged *staged);
struct epx_staged *epx_staged_of(const struct epx_request *request);

/* As epx_direct_handshake. Nothing else is started before the ranks agree. */
int epx_staged_handshake(struct epx_request *request, int *weighted, int *moved);
/* 1 in *moved when all that was started has ended. */
int epx_staged_done(struct epx_staged *staged, int *moved);

/* Begins to move the rows of a routing; the first block is the next. A token has at most so many
 * rows in a stage. */
void epx_staged_begin(struct epx_staged *staged, const struct epx_request *request,
                      int rows_per_token, int weighted);
int epx_staged_has_block(const struct epx_staged *staged);
/* Finds the rows of the next block, or of its next segment; 0 when there are no more. */
int epx_staged_next_block(struct epx_staged *staged);

/* Rows for a rank, in a stage of the given share for each rank. */
int64_t epx_staged_rows(const struct epx_staged *staged, int64_t row_stride);

/* Starts an exchange of counts * unit bytes: from the home stage to the expert stage, or back. */
int epx_staged_to_experts(struct epx_staged *staged);
int epx_staged_to_homes(struct epx_staged *staged);
/* Displacements of densely packed rows; counts and displacements in bytes too. */
void epx_staged_pack(const int32_t *rows, int num_ranks, int64_t row_stride, int64_t *at,
                     int *counts, int *displs);

#endif

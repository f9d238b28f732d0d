/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * plan.h - what a routing decides, in the communicator's memory space: which pair goes to which
 * slot, and the rows that travel, listed from both ends in the same order.
 */
#ifndef EPX_KERNELS_PLAN_H
#define EPX_KERNELS_PLAN_H

#include "base/memory.h"
#include "kernels/layout.h"
#include "kernels/plan_shape.h"

/* The first expert id out of range, in (token, choice) order. */
struct epx_bad_id {
    int64_t pairs; /* how many there are; the rest means something only if any */
    int32_t token, choice;
    int64_t value;
};

/* The record of (token, rank) that pairs are being added to. */
struct epx_open_record {
    int32_t *record, *next;
    int32_t token, pairs;
    int64_t slot; /* rank-major */
};

struct epx_node_plan;

struct epx_plan {
    struct epx_arrays arrays; /* all those below */

    /* fixed by the route */
    int32_t rank, num_ranks;
    struct epx_plan_shape shape;
    struct epx_count_shape count_shape;
    struct epx_record_shape record_shape;
    int32_t *owner;        /* [E] rank of each expert */
    int32_t *first_expert; /* [R + 1] of each rank */
    int32_t *rank_order;   /* [R] ranks by (node, rank): the order of sums, unless by_choice */
    const int32_t *node;   /* [R] node of each rank; the communicator's */
    int64_t *capacities;   /* [R] rows of each rank's receive buffer in this routing */

    /* exchanged: each rank's row of the matrix, and the records of each source rank */
    int32_t *matrix;     /* [R] rows, see layout.h */
    int32_t *records;    /* [R][max_tokens] */
    float *pair_weights; /* [max_tokens][K] routing weights or their gradients, under way */
    int32_t **matrix_of; /* [R] where matrix, records, pair_weights of each rank are stored into */
    int32_t **records_of;
    float **pair_weights_of;

    /* the home side; a row travels if one of its pairs was kept */
    int32_t num_tokens;
    int32_t *pair_experts; /* [max_tokens][K] expert id, -1 = none */
    int32_t *pair_ranks;   /* [max_tokens][K] rank that the pair travels to; -1 = none */
    int64_t *send_offset;  /* [R + 1] first row for each rank in send_token, send_slot */
    int32_t *send_rows;    /* [R] rows that travel to each rank */
    int32_t *send_token;   /* by rank, in token order */
    int32_t *send_slot;    /* where the row goes there first */
    int64_t *token_offset; /* [max_tokens + 1] first row of each token in the three lists below */
    int32_t *token_rank;   /* by token, in the order of sums */
    int32_t *token_slot;
    int32_t *token_row; /* the row's place in the list of its rank */
    int64_t dropped;    /* pairs (rank-major: unique rows) without room */
    struct epx_bad_id bad;

    /* the expert side */
    int32_t *recv_rows; /* [R] rows that travel here from each rank */
    float *row_weights; /* [capacity] of a combine whose home ranks have the weights */

    struct epx_plan_view view;
    int32_t short_rank;   /* the first rank without room for all rows; -1 = none */
    int64_t short_rows;   /* rows that it would need */
    int32_t short_expert; /* where slabs are of fixed size: the first without room; -1 = none */
    int64_t short_pairs;  /* pairs that it has */

    /* work space of the kernels */
    int64_t *next_slot;                   /* [E] next slot of a pair for each expert */
    int64_t *next_row;                    /* [R] next slot of a row on each rank, rank-major */
    int32_t *last_token;                  /* [R] token of the last unique row for each rank */
    int32_t *listed_rows;                 /* [R] rows for each rank that are listed by token */
    struct epx_open_record *open_records; /* [R] */
    int32_t **record_to;  /* [R] where this rank's records for each rank are written */
    int32_t *own_counts;  /* this rank's row of the matrix, before it is sent */
    int32_t *own_records; /* [max_tokens * min(K, R)] this rank's records, if they must be sent */
    int32_t *token_rows;  /* [max_tokens] rows of each token so far */

    struct epx_node_plan *by_node; /* where a row crosses to another node once; else NULL */
};

EPX_HD int32_t *epx_plan_record(const struct epx_plan *plan, int32_t source, int64_t row)
{
    return epx_record_at(plan->records, plan->record_shape,
                         (int64_t)source * plan->shape.max_tokens + row);
}

EPX_HD int32_t *epx_plan_counts(const struct epx_plan *plan, int32_t source)
{
    return epx_counts_of(plan->matrix, plan->count_shape, source);
}

/* Unique rows from source to destination, those that were dropped included. */
EPX_HD int32_t epx_plan_unique(const struct epx_plan *plan, int32_t source, int32_t destination)
{
    return epx_unique_rows(epx_plan_counts(plan, source), plan->count_shape)[destination];
}

#endif

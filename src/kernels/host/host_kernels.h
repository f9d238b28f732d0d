/* SPDX-License-Identifier: BSD-3-Clause */
/* host_kernels.h - the kernels of host memory, each in the file of its name. */
#ifndef EPX_KERNELS_HOST_HOST_KERNELS_H
#define EPX_KERNELS_HOST_HOST_KERNELS_H

#include "kernels/host/rows.h"
#include "kernels/host/stage_stores.h"
#include "kernels/plan.h"

/*
 * Arguments of epx_count_pairs_host. It counts the pairs of each expert and the unique rows of each
 * rank, finds bad ids and copies the ids. It reads the user's ids once, so that what it copies is
 * what it counted.
 */
struct epx_count_pairs {
    const void *ids;      /* [num_tokens][top_k] */
    const int32_t *owner; /* [E] */
    int32_t num_tokens, top_k, index_bits;
    int32_t capacity; /* rows of this rank's receive buffer */
    struct epx_count_shape shape;
    int32_t *experts;       /* out: [num_tokens][top_k] the ids, -1 in place of bad ones */
    int32_t *counts;        /* out: a row of the count matrix */
    int32_t *last_token;    /* [R] work space */
    struct epx_bad_id *bad; /* out */
};

/* The rows of one exchange of the staged algorithm: those of tokens [first_token, end_token). */
struct epx_block {
    int32_t first_token, end_token;
    int64_t segment;
    int64_t row_stride;              /* bytes of a row in the stage, pair weights included */
    int64_t *home_row;               /* [R] first row in the plan's list for each rank */
    int32_t *home_rows;              /* [R] rows for each rank */
    int32_t *record;                 /* [R] first record from each rank */
    int32_t *record_end;             /* [R] */
    int32_t *expert_rows;            /* [R] how many rows of these records travel */
    char *const *home_at;            /* [R] where each rank's rows are, or go, on the home side */
    char *const *expert_at;          /* [R] where each rank's rows are, or go, on the expert side */
    struct epx_stage_stores *stores; /* [R] how rows are stored where they go, on the home side */
};

struct epx_node_block;

/* Counts this rank's pairs and rows, and finds bad ids. */
void epx_count_pairs_host(const struct epx_count_pairs *args);
/* Finds, from the count matrix, the slab offsets here and this rank's first slots everywhere. */
void epx_offset_slabs_host(struct epx_plan *plan);
/* Gives each pair its slot, writes the records and lists the rows that travel. */
void epx_assign_slots_host(struct epx_plan *plan);
/* Finds, from the records, the home of each row here and how many rows travel here. */
void epx_index_rows_host(struct epx_plan *plan);
/* Zeroes padding rows and their weights (either may be NULL). */
void epx_zero_padding_host(const struct epx_plan *plan, void *rows, int64_t row_bytes,
                           float *row_weights);
/* Zeroes the rows that nothing arrives in, up to the capacity, and their weights, `width` of each
 * row (either may be NULL). */
void epx_zero_unused_host(const struct epx_plan *plan, void *rows, int64_t row_bytes,
                          float *row_weights, int64_t width);

/* Home side: copies the rows and pair weights of a block to their places. */
void epx_pack_rows_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                        const struct epx_block *block);
/* Expert side: copies the rows of a block to their slots. */
void epx_unpack_rows_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                          const struct epx_block *block);
/* Expert side: stores the sum of each row's pairs to its place. */
void epx_sum_pairs_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                        const struct epx_block *block);
/* Home side: sums each token's rows. */
void epx_sum_ranks_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                        const struct epx_block *block);

/* The kernels of the hierarchical algorithms follow; node_rows.h has what they work on. */
/* Numbers the rows by node. */
void epx_list_node_rows_host(struct epx_plan *plan);
/* Home side: copies the rows and weights of a block into this rank's area and the stage. */
void epx_pack_node_rows_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                             const struct epx_node_block *block);
/* Expert side: copies the rows of a block from the areas of the node to their slots. */
void epx_unpack_node_rows_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                               const struct epx_node_block *block);
/* Relay: stores the sum of each node row's parts into the stage. */
void epx_sum_node_ranks_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                             const struct epx_node_block *block);
/* Home side: sums each token's rows from the areas and the stage. */
void epx_sum_nodes_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                        const struct epx_node_block *block);

#endif

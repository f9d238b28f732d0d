/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host_kernels.h - the table of launchers of a memory space. Nothing above it knows where the work
 * runs. A launcher returns EPX_SUCCESS once its kernel is queued on the stream (host: done).
 */
#ifndef EPX_KERNELS_HOST_HOST_KERNELS_H
#define EPX_KERNELS_HOST_HOST_KERNELS_H

#include "kernels/host/rows.h"
#include "kernels/host/stage_stores.h"
#include "kernels/plan.h"

/*
 * Counts the pairs of each expert and the unique rows of each rank, and finds bad ids. What it
 * counted is what it copies: the user's ids are read once.
 */
struct epx_count_pairs {
    const void *ids;       /* [num_tokens][top_k] */
    const int32_t *owner;  /* [E] */
    int32_t num_tokens, top_k, index_bits;
    struct epx_count_shape shape;
    int32_t *experts;      /* out: [num_tokens][top_k] the ids, -1 in place of bad ones */
    int32_t *counts;       /* out: a row of the count matrix */
    int32_t *last_token;   /* [R] work space */
    struct epx_bad_id *bad; /* out */
};

/* The rows of one exchange of the staged algorithm: those of tokens [first_token, end_token). */
struct epx_block {
    int32_t first_token, end_token;
    int64_t segment;
    int64_t row_stride;       /* bytes of a row in the stage, pair weights included */
    int64_t *home_row;        /* [R] first row in the plan's list for each rank */
    int32_t *home_rows;       /* [R] rows for each rank */
    int32_t *record;          /* [R] first record from each rank */
    int32_t *record_end;      /* [R] */
    int32_t *expert_rows;     /* [R] records in between that travel */
    char *const *home_at;     /* [R] where each rank's rows are, or go, on the home side */
    char *const *expert_at;   /* [R] likewise on the expert side */
    struct epx_stage_stores *stores; /* [R] how rows are stored where they go, on the home side */
};

struct epx_node_block;

struct epx_kernels {
    int (*count_pairs)(const struct epx_count_pairs *args, EPX_Stream stream);
    /* From the count matrix: slab offsets here, and this rank's first slots everywhere. */
    int (*offset_slabs)(struct epx_plan *plan, EPX_Stream stream);
    /* Gives each pair its slot, writes the records and lists the rows that travel. */
    int (*assign_slots)(struct epx_plan *plan, EPX_Stream stream);
    /* From the records: the home of each row here, and how many rows travel here. */
    int (*index_rows)(struct epx_plan *plan, EPX_Stream stream);
    /* Zeroes padding rows and their weights (either may be NULL). */
    int (*zero_padding)(const struct epx_plan *plan, void *rows, int64_t row_bytes,
                        float *row_weights, EPX_Stream stream);
    /* Home side: rows and pair weights of a block to their place. */
    int (*pack_rows)(const struct epx_plan *plan, const struct epx_home_rows *rows,
                     const struct epx_block *block, EPX_Stream stream);
    /* Expert side: a block to its slots. */
    int (*unpack_rows)(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                       const struct epx_block *block, EPX_Stream stream);
    /* Expert side: the sum of each row's pairs to its place. */
    int (*sum_pairs)(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                     const struct epx_block *block, EPX_Stream stream);
    /* Home side: the sum of each token's rows. */
    int (*sum_ranks)(const struct epx_plan *plan, const struct epx_home_rows *rows,
                     const struct epx_block *block, EPX_Stream stream);

    /* Where a row crosses to another node once; see node_rows.h. */
    /* Numbers the rows by node. */
    int (*list_node_rows)(struct epx_plan *plan, EPX_Stream stream);
    /* Home side: rows and weights of a block into its area and the stage. */
    int (*pack_node_rows)(const struct epx_plan *plan, const struct epx_home_rows *rows,
                          const struct epx_node_block *block, EPX_Stream stream);
    /* Expert side: a block from the areas of the node to its slots. */
    int (*unpack_node_rows)(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                            const struct epx_node_block *block, EPX_Stream stream);
    /* Relay: the sum of each node row's parts into the stage. */
    int (*sum_node_ranks)(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                          const struct epx_node_block *block, EPX_Stream stream);
    /* Home side: the sum of each token's rows from the areas and the stage. */
    int (*sum_nodes)(const struct epx_plan *plan, const struct epx_home_rows *rows,
                     const struct epx_node_block *block, EPX_Stream stream);
};

extern const struct epx_kernels epx_kernels_host;

int epx_count_pairs_host(const struct epx_count_pairs *args, EPX_Stream stream);
int epx_offset_slabs_host(struct epx_plan *plan, EPX_Stream stream);
int epx_assign_slots_host(struct epx_plan *plan, EPX_Stream stream);
int epx_index_rows_host(struct epx_plan *plan, EPX_Stream stream);
int epx_zero_padding_host(const struct epx_plan *plan, void *rows, int64_t row_bytes,
                          float *row_weights, EPX_Stream stream);
int epx_pack_rows_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                       const struct epx_block *block, EPX_Stream stream);
int epx_unpack_rows_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                         const struct epx_block *block, EPX_Stream stream);
int epx_sum_pairs_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                       const struct epx_block *block, EPX_Stream stream);
int epx_sum_ranks_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                       const struct epx_block *block, EPX_Stream stream);
int epx_list_node_rows_host(struct epx_plan *plan, EPX_Stream stream);
int epx_pack_node_rows_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                            const struct epx_node_block *block, EPX_Stream stream);
int epx_unpack_node_rows_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                              const struct epx_node_block *block, EPX_Stream stream);
int epx_sum_node_ranks_host(const struct epx_plan *plan, const struct epx_expert_rows *rows,
                            const struct epx_node_block *block, EPX_Stream stream);
int epx_sum_nodes_host(const struct epx_plan *plan, const struct epx_home_rows *rows,
                       const struct epx_node_block *block, EPX_Stream stream);

#endif

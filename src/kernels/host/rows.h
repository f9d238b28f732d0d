/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rows.h - what happens to one row, said once for the direct and the staged algorithm on host
 * memory: copy it to its slots, scale it into them, sum its pairs, sum a token's rows.
 */
#ifndef EPX_KERNELS_HOST_ROWS_H
#define EPX_KERNELS_HOST_ROWS_H

#include "base/field.h"
#include "kernels/element.h"
#include "kernels/host/row_copy.h"
#include "kernels/plan.h"

/* Elements over which a row is processed at a time. Rows are added in short blocks, so that the
 * processor reads several rows ahead at once; the longer block and its lanes are the shape of a
 * weight gradient's sum. */
enum { EPX_SUM_BLOCK = 256, EPX_ROW_BLOCK = 1024, EPX_SUM_LANES = 256 };

/* One operation seen from the expert's rank. */
struct epx_expert_rows {
    EPX_Datatype datatype;
    EPX_Datatype partial;            /* of the sums that travel */
    struct epx_segments cut;         /* of a row as it travels */
    int weighted;                    /* pair weights travel with the rows */
    int scales;                      /* combine backward: rows are scaled into their slots */
    int bypasses;                    /* copied rows bypass the caches */
    const struct epx_fields *fields; /* out: [capacity] rows of each; NULL where rows are summed */
    float *row_weights;      /* out or NULL: [capacity], rank-major dispatch [capacity][K] */
    const void *rows_in;     /* rows that are summed; combine backward: those combine was given */
    const float *weights_in; /* or NULL: combine [capacity], dispatch backward as row_weights */
    double *sums;            /* [R][K] weight gradients of the row under way from each rank */
};

/* One operation seen from the home rank. */
struct epx_home_rows {
    EPX_Datatype datatype;
    EPX_Datatype partial;    /* of the sums that travel */
    struct epx_segments cut; /* of a row as it travels */
    int weighted;
    const struct epx_fields
        *fields;             /* [T] rows of each that are sent; NULL where rows are summed */
    const float *weights_in; /* [T][K] pair weights that are sent */
    int num_biases;          /* arrays of [T] rows of the datatype that sums start from */
    const void *const *biases;
    void *rows;          /* out: [T] rows */
    float *weights;      /* out or NULL: [T][K] */
    const int32_t *node; /* [R] node of each rank */
};

/* One segment of a row that came to the expert's rank. */
struct epx_row_segment {
    int64_t segment;
    const char *data;
    const float *pair_weights; /* of the row, in pair order; read with segment 0 only */
};

/* What the ranks have of one token's result, by (node, rank). */
struct epx_token_parts {
    const char *const *rows; /* [num] */
    const int32_t *ranks;    /* [num] */
    int num;
};

/* Home side: one segment of a row, gathered from its fields. */
void epx_gather_row(const struct epx_home_rows *op, int64_t row, int64_t segment, char *to,
                    int bypasses);
/* Expert side: one segment of a row to all its slots, scattered into its fields. */
void epx_receive_row(const struct epx_plan *plan, const struct epx_expert_rows *op, int32_t source,
                     int32_t *record, struct epx_row_segment came);
/* Expert side: a row that lies field by field, from[f] being its part of field f, to all its slots;
 * it may lie in the first one already. For rows that are not scaled. */
void epx_receive_fields(const struct epx_plan *plan, const struct epx_expert_rows *op,
                        int32_t *record, const char *const from[], const float *pair_weights);
/* Expert side: one segment of the sum of a row's pairs, rounded to the type of partials. */
void epx_sum_row_pairs(const struct epx_plan *plan, const struct epx_expert_rows *op,
                       int32_t *record, int64_t segment, char *sum);
/* Expert side: gradients of the pair weights of a row, in pair order. */
void epx_take_pair_weights(const struct epx_plan *plan, const struct epx_expert_rows *op,
                           int32_t *record, float *pair_weights);
/* Relay: one segment of the sum of a node's rows, by rank, rounded to the type of partials. */
void epx_sum_node_rows(const struct epx_expert_rows *op, int64_t segment, const char *const rows[],
                       int num, char *sum);

/* Home side: one segment of a token's result, the sum of its parts. */
void epx_sum_token_rows(const struct epx_plan *plan, const struct epx_home_rows *op, int32_t token,
                        int64_t segment, struct epx_token_parts parts);
/* Home side: weights of the pairs of (token, rank) in pair order; returns their number. */
int epx_give_pair_weights(const struct epx_plan *plan, const float *weights, int32_t token,
                          int32_t rank, float *pair_weights);
void epx_put_pair_weights(const struct epx_plan *plan, float *weights, int32_t token, int32_t rank,
                          const float *pair_weights);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* rows.c - what happens to one row on host memory. */
#include "kernels/host/rows.h"

static void load_float(EPX_Datatype datatype, const char *src, int n, float *dst)
{
    uint16_t half;

    switch (datatype) {
    case EPX_FLOAT16:
        for (int i = 0; i < n; i++) {
            memcpy(&half, src + 2 * i, 2);
            dst[i] = epx_float_of_float16(half);
        }
        break;
    case EPX_BFLOAT16:
        for (int i = 0; i < n; i++) {
            memcpy(&half, src + 2 * i, 2);
            dst[i] = epx_float_of_bfloat16(half);
        }
        break;
    default: memcpy(dst, src, (size_t)n * sizeof(*dst));
    }
}

static void store_float(EPX_Datatype datatype, const float *src, int n, char *dst)
{
    uint16_t half;

    switch (datatype) {
    case EPX_FLOAT16:
        for (int i = 0; i < n; i++) {
            half = epx_float16_of_float(src[i]);
            memcpy(dst + 2 * i, &half, 2);
        }
        break;
    case EPX_BFLOAT16:
        for (int i = 0; i < n; i++) {
            half = epx_bfloat16_of_float(src[i]);
            memcpy(dst + 2 * i, &half, 2);
        }
        break;
    default: memcpy(dst, src, (size_t)n * sizeof(*src));
    }
}

static void load_double(EPX_Datatype datatype, const char *src, int n, double *dst)
{
    (void)datatype;
    memcpy(dst, src, (size_t)n * sizeof(*dst));
}

static void store_double(EPX_Datatype datatype, const double *src, int n, char *dst)
{
    (void)datatype;
    memcpy(dst, src, (size_t)n * sizeof(*src));
}

/* One block of each row that is summed; weights NULL = 1. */
struct terms {
    const char *const *rows;
    const float *weights;
    int num;
};

/* One block of each of a token's rows, with the node that it is from, and of its biases; nodes come
 * in runs. */
struct node_parts {
    const char *row[EPX_MAX_TOP_K];
    int32_t node[EPX_MAX_TOP_K];
    int num, num_biases;
    const char *bias[EPX_MAX_BIASES];
};

#define EPX_SUM float
#define EPX_SUM_NAME(name) name##_float
#include "kernels/host/row_arithmetic.h"
#undef EPX_SUM
#undef EPX_SUM_NAME
#define EPX_SUM double
#define EPX_SUM_NAME(name) name##_double
#include "kernels/host/row_arithmetic.h"

static int slot_count(int32_t *record)
{
    return record[EPX_RECORD_SLOTS];
}

static int64_t row_offset(struct epx_segments cut, int64_t row, int64_t segment)
{
    return row * cut.row_bytes + epx_segment_offset(cut, segment);
}

static void scale_segment(const struct epx_expert_rows *op, const char *src, float weight,
                          int64_t elements, char *dst)
{
    int size = epx_datatype_bytes(op->datatype);

    for (int64_t i = 0; i < elements; i += EPX_ROW_BLOCK) {
        int n = (int)(elements - i < EPX_ROW_BLOCK ? elements - i : EPX_ROW_BLOCK);

        if (op->datatype == EPX_FLOAT64)
            scale_row_double(op->datatype, src + i * size, weight, n, dst + i * size);
        else
            scale_row_float(op->datatype, src + i * size, weight, n, dst + i * size);
    }
}

static double dot_segment(EPX_Datatype datatype, double sum, const char *a, const char *b,
                          int64_t elements, int first)
{
    int size = epx_datatype_bytes(datatype);

    for (int64_t i = 0; i < elements; i += EPX_ROW_BLOCK, first = 0) {
        int n = (int)(elements - i < EPX_ROW_BLOCK ? elements - i : EPX_ROW_BLOCK);
        int wide = datatype == EPX_FLOAT64;
        double block = wide ? dot_block_double(datatype, a + i * size, b + i * size, n)
                            : dot_block_float(datatype, a + i * size, b + i * size, n);

        sum = first ? block : wide ? add_block_double(sum, block) : add_block_float(sum, block);
    }
    return sum;
}

static void receive_scaled(const struct epx_expert_rows *op, double *sums, int32_t *record,
                           int64_t segment, const char *data)
{
    int64_t bytes = epx_segment_length(op->cut, segment);
    int64_t elements = bytes / epx_datatype_bytes(op->datatype);

    for (int i = 0; i < slot_count(record); i++) {
        int32_t slot = epx_record_slots(record)[i];
        char *to = (char *)op->fields->at[0].out + row_offset(op->cut, slot, segment);

        if (op->weights_in)
            scale_segment(op, data, op->weights_in[slot], elements, to);
        else
            memcpy(to, data, (size_t)bytes);
        if (!op->row_weights)
            continue;
        sums[i] = dot_segment(op->datatype, segment ? sums[i] : 0, data,
                              (const char *)op->rows_in + row_offset(op->cut, slot, segment),
                              elements, segment == 0);
        if (segment == op->cut.num - 1)
            op->row_weights[slot] = (float)sums[i];
    }
}

/*
 * The next part of a segment that lies in one field: `at` is its offset in the fields from this one
 * on, and becomes that in the fields behind it; returns the bytes of the part, and takes them from
 * `rest`.
 */
static int64_t take_part(int64_t field_bytes, int64_t *at, int64_t *rest)
{
    int64_t part = field_bytes - *at < *rest ? field_bytes - *at : *rest;

    if (part <= 0) {
        *at -= field_bytes;
        return 0;
    }
    *at = 0;
    *rest -= part;
    return part;
}

void epx_gather_row(const struct epx_home_rows *op, int64_t row, int64_t segment, char *to,
                    int bypasses)
{
    int64_t at = epx_segment_offset(op->cut, segment), rest = epx_segment_length(op->cut, segment);

    for (const struct epx_field *field = op->fields->at; rest; field++) {
        const char *from = (const char *)field->in + row * field->bytes + at;
        int64_t part = take_part(field->bytes, &at, &rest);

        epx_row_copy(to, from, part, bypasses);
        to += part;
    }
}

static void scatter_row(const struct epx_expert_rows *op, int64_t slot, int64_t segment,
                        const char *from)
{
    int64_t at = epx_segment_offset(op->cut, segment), rest = epx_segment_length(op->cut, segment);

    for (const struct epx_field *field = op->fields->at; rest; field++) {
        char *to = (char *)field->out + slot * field->bytes + at;
        int64_t part = take_part(field->bytes, &at, &rest);

        epx_row_copy(to, from, part, op->bypasses);
        from += part;
    }
}

static inline void receive_weights(const struct epx_plan *plan, const struct epx_expert_rows *op,
                                   int32_t *record, const float *pair_weights)
{
    const uint8_t *choices = epx_record_choices(record, plan->record_shape);
    float *to;

    if (!plan->shape.rank_major) {
        for (int i = 0; i < slot_count(record); i++)
            op->row_weights[epx_record_slots(record)[i]] = pair_weights[i];
        return;
    }
    to = op->row_weights + (int64_t)epx_record_slots(record)[0] * plan->shape.top_k;
    memset(to, 0, (size_t)plan->shape.top_k * sizeof(*to));
    for (int i = 0; i < record[EPX_RECORD_PAIRS]; i++)
        to[choices[i]] = pair_weights[i];
}

void epx_receive_row(const struct epx_plan *plan, const struct epx_expert_rows *op, int32_t source,
                     int32_t *record, struct epx_row_segment came)
{
    if (op->scales) {
        receive_scaled(op, op->sums + (size_t)source * (size_t)plan->shape.top_k, record,
                       came.segment, came.data);
        return;
    }
    for (int i = 0; i < slot_count(record); i++)
        scatter_row(op, epx_record_slots(record)[i], came.segment, came.data);
    if (op->weighted && op->row_weights && came.segment == 0)
        receive_weights(plan, op, record, came.pair_weights);
}

void epx_receive_fields(const struct epx_plan *plan, const struct epx_expert_rows *op,
                        int32_t *record, const char *const from[], const float *pair_weights)
{
    for (int f = 0; f < op->fields->num; f++) {
        const struct epx_field *field = &op->fields->at[f];

        for (int i = 0; i < slot_count(record); i++) {
            char *to = (char *)field->out + epx_record_slots(record)[i] * field->bytes;

            if (to != from[f])
                epx_row_copy(to, from[f], field->bytes, op->bypasses);
        }
    }
    if (op->weighted && op->row_weights)
        receive_weights(plan, op, record, pair_weights);
}

void epx_sum_row_pairs(const struct epx_plan *plan, const struct epx_expert_rows *op,
                       int32_t *record, int64_t segment, char *sum)
{
    const char *rows[EPX_MAX_TOP_K];
    float weights[EPX_MAX_TOP_K];
    int num = slot_count(record), weighted = op->weights_in && !op->weighted;
    int size = epx_datatype_bytes(op->datatype), wide = epx_datatype_bytes(op->partial);
    int64_t elements = epx_segment_length(op->cut, segment) / wide;
    struct terms terms = {rows, weighted ? weights : NULL, num};

    (void)plan;
    for (int64_t i = 0; i < elements; i += EPX_SUM_BLOCK) {
        int n = (int)(elements - i < EPX_SUM_BLOCK ? elements - i : EPX_SUM_BLOCK);

        for (int k = 0; k < num; k++) {
            rows[k] = (const char *)op->rows_in +
                      row_offset(op->cut, epx_record_slots(record)[k], segment) / wide * size +
                      i * size;
            weights[k] = weighted ? op->weights_in[epx_record_slots(record)[k]] : 1;
        }
        if (op->datatype == EPX_FLOAT64)
            sum_pairs_double(op->datatype, op->partial, terms, n, sum + i * wide);
        else
            sum_pairs_float(op->datatype, op->partial, terms, n, sum + i * wide);
    }
}

void epx_take_pair_weights(const struct epx_plan *plan, const struct epx_expert_rows *op,
                           int32_t *record, float *pair_weights)
{
    const uint8_t *choices = epx_record_choices(record, plan->record_shape);
    const int32_t *slots = epx_record_slots(record);

    for (int i = 0; i < record[EPX_RECORD_PAIRS]; i++) {
        int64_t at =
            plan->shape.rank_major ? (int64_t)slots[0] * plan->shape.top_k + choices[i] : slots[i];

        pair_weights[i] = op->weights_in[at];
    }
}

void epx_sum_node_rows(const struct epx_expert_rows *op, int64_t segment, const char *const rows[],
                       int num, char *sum)
{
    const char *block[EPX_MAX_TOP_K];
    int size = epx_datatype_bytes(op->partial);
    int64_t elements = epx_segment_length(op->cut, segment) / size;
    struct terms terms = {block, NULL, num};

    for (int64_t i = 0; i < elements; i += EPX_SUM_BLOCK) {
        int n = (int)(elements - i < EPX_SUM_BLOCK ? elements - i : EPX_SUM_BLOCK);

        for (int k = 0; k < num; k++)
            block[k] = rows[k] + i * size;
        if (op->partial == EPX_FLOAT64)
            sum_pairs_double(op->partial, op->partial, terms, n, sum + i * size);
        else
            sum_pairs_float(op->partial, op->partial, terms, n, sum + i * size);
    }
}

void epx_sum_token_rows(const struct epx_plan *plan, const struct epx_home_rows *op, int32_t token,
                        int64_t segment, struct epx_token_parts parts)
{
    struct node_parts block;
    int size = epx_datatype_bytes(op->datatype), wide = epx_datatype_bytes(op->partial);
    int64_t elements = epx_segment_length(op->cut, segment) / wide;
    int64_t offset = row_offset(op->cut, token, segment) / wide * size;
    int terms = parts.num + op->num_biases;
    char *to = (char *)op->rows + offset;

    if (terms == 0 && elements)
        memset(to, 0, (size_t)(elements * size));
    block.num = parts.num;
    block.num_biases = op->num_biases;
    for (int k = 0; k < parts.num; k++)
        block.node[k] = op->node[parts.ranks[k]];
    for (int64_t i = 0; terms && i < elements; i += EPX_SUM_BLOCK) {
        int n = (int)(elements - i < EPX_SUM_BLOCK ? elements - i : EPX_SUM_BLOCK);

        for (int k = 0; k < parts.num; k++)
            block.row[k] = parts.rows[k] + i * wide;
        for (int b = 0; b < op->num_biases; b++)
            block.bias[b] = (const char *)op->biases[b] + offset + i * size;
        if (op->datatype == EPX_FLOAT64)
            sum_ranks_double(op->partial, op->datatype, &block, op->node[plan->rank], n,
                             to + i * size);
        else
            sum_ranks_float(op->partial, op->datatype, &block, op->node[plan->rank], n,
                            to + i * size);
    }
}

int epx_give_pair_weights(const struct epx_plan *plan, const float *weights, int32_t token,
                          int32_t rank, float *pair_weights)
{
    int64_t first = (int64_t)token * plan->shape.top_k;
    int num = 0;

    for (int k = 0; k < plan->shape.top_k; k++)
        if (plan->pair_ranks[first + k] == rank)
            pair_weights[num++] = weights[first + k];
    return num;
}

void epx_put_pair_weights(const struct epx_plan *plan, float *weights, int32_t token, int32_t rank,
                          const float *pair_weights)
{
    int64_t first = (int64_t)token * plan->shape.top_k;
    int num = 0;

    for (int k = 0; k < plan->shape.top_k; k++)
        if (plan->pair_ranks[first + k] == rank)
            weights[first + k] = pair_weights[num++];
}

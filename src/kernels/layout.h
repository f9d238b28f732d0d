/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layout.h - where things lie, said once for host and device: expert blocks, rows of the count
 * matrix, records, and the cut of long rows into segments.
 */
#ifndef EPX_KERNELS_LAYOUT_H
#define EPX_KERNELS_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define EPX_HD static __host__ __device__ __forceinline__
#else
#define EPX_HD static inline
#endif

enum { EPX_MAX_TOP_K = 64 };

/* The elements of a block of the weight gradients' sums: EPX_Combine_backward(3). */
enum { EPX_DOT_ELEMENTS = 1024 };

/* A long row is cut at multiples of this, so that every cut is a multiple of a block of those sums
 * for every datatype. */
enum { EPX_SEGMENT_QUANTUM = 8 * EPX_DOT_ELEMENTS };

/* The first expert of a rank: rank r owns [first(r), first(r + 1)). */
EPX_HD int32_t epx_first_expert(int32_t rank, int32_t num_experts, int32_t num_ranks)
{
    return (int32_t)((int64_t)rank * num_experts / num_ranks);
}

/* The rank of an expert: the last one whose first expert does not come behind it. num_experts *
 * num_ranks must be less than 2^32. */
EPX_HD int32_t epx_owner(int32_t expert, int32_t num_experts, int32_t num_ranks)
{
    return (int32_t)((((uint32_t)expert + 1) * (uint32_t)num_ranks - 1) / (uint32_t)num_experts);
}

/* Blocks of a row of so many elements: the weight gradients' sums add their dots in order. */
EPX_HD int64_t epx_dot_blocks(int64_t elements)
{
    return (elements + EPX_DOT_ELEMENTS - 1) / EPX_DOT_ELEMENTS;
}

EPX_HD int64_t epx_expert_id(const void *ids, int index_bits, int64_t pair)
{
    return index_bits == 32 ? ((const int32_t *)ids)[pair] : ((const int64_t *)ids)[pair];
}

EPX_HD int64_t epx_round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/*
 * A row of the count matrix, one from each source rank: pairs for each expert, unique rows for
 * each rank, number of tokens, receive capacity.
 */
struct epx_count_shape {
    int32_t num_experts;
    int32_t num_ranks;
};

EPX_HD size_t epx_count_words(struct epx_count_shape shape)
{
    return (size_t)shape.num_experts + (size_t)shape.num_ranks + 2;
}

EPX_HD int32_t *epx_counts_of(int32_t *matrix, struct epx_count_shape shape, int32_t source)
{
    return matrix + (size_t)source * epx_count_words(shape);
}

EPX_HD int32_t *epx_unique_rows(int32_t *counts, struct epx_count_shape shape)
{
    return counts + shape.num_experts;
}

EPX_HD int32_t *epx_num_tokens(int32_t *counts, struct epx_count_shape shape)
{
    return counts + shape.num_experts + shape.num_ranks;
}

EPX_HD int32_t *epx_capacity_word(int32_t *counts, struct epx_count_shape shape)
{
    return counts + shape.num_experts + shape.num_ranks + 1;
}

/*
 * A record: what the expert's rank knows of one unique row.
 *   int32 token      index on the home rank
 *   int32 num_slots  slots of the row here: its pairs (expert-major), one (rank-major); 0 = dropped
 *   int32 num_pairs  pairs of the row that were kept
 *   int32 slots[]    K in expert-major, 1 in rank-major
 *   int32 experts[]  local expert of each pair; rank-major only
 *   uint8 choices[]  choice of each pair, ascending
 */
struct epx_record_shape {
    int32_t top_k;
    int32_t max_slots;
    int32_t max_experts;
};

enum { EPX_RECORD_TOKEN, EPX_RECORD_SLOTS, EPX_RECORD_PAIRS, EPX_RECORD_HEADER };

EPX_HD struct epx_record_shape epx_record_shape(int32_t top_k, int rank_major)
{
    struct epx_record_shape shape;

    shape.top_k = top_k;
    shape.max_slots = rank_major ? 1 : top_k;
    shape.max_experts = rank_major ? top_k : 0;
    return shape;
}

EPX_HD size_t epx_record_bytes(struct epx_record_shape shape)
{
    size_t words = (size_t)(EPX_RECORD_HEADER + shape.max_slots + shape.max_experts);

    return (size_t)epx_round_up((int64_t)(4 * words + (size_t)shape.top_k), 4);
}

EPX_HD int32_t *epx_record_slots(int32_t *record)
{
    return record + EPX_RECORD_HEADER;
}

EPX_HD int32_t *epx_record_experts(int32_t *record, struct epx_record_shape shape)
{
    return record + EPX_RECORD_HEADER + shape.max_slots;
}

EPX_HD uint8_t *epx_record_choices(int32_t *record, struct epx_record_shape shape)
{
    return (uint8_t *)(record + EPX_RECORD_HEADER + shape.max_slots + shape.max_experts);
}

EPX_HD int32_t *epx_record_at(int32_t *records, struct epx_record_shape shape, int64_t index)
{
    return (int32_t *)((char *)records + index * (int64_t)epx_record_bytes(shape));
}

/* A row is moved in num segments of at most bytes each; an empty row is one empty segment. */
struct epx_segments {
    int64_t row_bytes;
    int64_t bytes;
    int64_t num;
};

EPX_HD struct epx_segments epx_segments_cut(int64_t row_bytes, int64_t most_bytes)
{
    struct epx_segments cut;
    int64_t quantum = EPX_SEGMENT_QUANTUM;

    cut.row_bytes = row_bytes;
    cut.bytes = row_bytes <= most_bytes ? row_bytes : most_bytes / quantum * quantum;
    cut.num = cut.bytes ? (row_bytes + cut.bytes - 1) / cut.bytes : 1;
    return cut;
}

EPX_HD int64_t epx_segment_offset(struct epx_segments cut, int64_t segment)
{
    return segment * cut.bytes;
}

EPX_HD int64_t epx_segment_length(struct epx_segments cut, int64_t segment)
{
    int64_t rest = cut.row_bytes - segment * cut.bytes;

    return rest < cut.bytes ? rest : cut.bytes;
}

#endif

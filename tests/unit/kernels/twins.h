/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * twins.h - code that is written once for host and device, as steps from words to words that both
 * run on the same input; and what a warp does to rows.
 */
#ifndef TWINS_H
#define TWINS_H

#include "kernels/args/device_comm.h"
#include "kernels/control_words.h"
#include "kernels/device_plan.h"
#include "kernels/element.h"
#include "kernels/slabs.h"
#include "kernels/slices.h"

enum twin_step {
    STEP_CONVERSIONS,
    STEP_ARITHMETIC,
    STEP_HALVES,
    STEP_DATATYPES,
    STEP_EXPERTS,
    STEP_SLABS,
    STEP_COUNTS,
    STEP_RECORDS,
    STEP_WIRE,
    STEP_SEGMENTS,
    STEP_CONTROL,
    STEP_SLICES,
    NUM_STEPS
};

enum { STEP_IN = 4, STEP_OUT = 5 }; /* words of one input and one output */

EPX_HD uint64_t double_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return value == value ? bits : ~(uint64_t)0; /* which NaN a sum gives is not promised */
}

EPX_HD uint64_t number_bits(float value)
{
    return value == value ? epx_float_bits(value) : ~(uint64_t)0;
}

/* A number of 16 bits of which those above `infinity`, but for the sign, are NaNs. */
EPX_HD uint64_t half_bits(uint16_t half, uint16_t infinity)
{
    return (half & 0x7fffu) > infinity ? 0x7fffu : half;
}

EPX_HD void step_conversions(const uint64_t *in, uint64_t *out)
{
    float value = epx_float_of_bits((uint32_t)in[0]);

    out[0] = number_bits(epx_float_of_float16((uint16_t)in[0]));
    out[1] = number_bits(epx_float_of_bfloat16((uint16_t)in[0]));
    out[2] = half_bits(epx_float16_of_float(value), 0x7c00u);
    out[3] = half_bits(epx_bfloat16_of_float(value), 0x7f80u);
}

EPX_HD void step_arithmetic(const uint64_t *in, uint64_t *out)
{
    float a = epx_float_of_bits((uint32_t)in[0]), b = epx_float_of_bits((uint32_t)in[1]);
    double c, d;

    memcpy(&c, &in[0], sizeof(c));
    memcpy(&d, &in[1], sizeof(d));
    out[0] = number_bits(epx_mul_float(a, b));
    out[1] = number_bits(epx_add_float(a, b));
    out[2] = double_bits(epx_mul_double(c, d));
    out[3] = double_bits(epx_add_double(c, d));
    out[4] = number_bits(epx_add_float(epx_mul_float(a, b), a)); /* no FMA */
}

/* Sums of two halves, as one instruction makes them where there is one. */
EPX_HD void step_halves(const uint64_t *in, uint64_t *out)
{
    uint32_t a = (uint32_t)in[0], b = (uint32_t)in[1], brain = 0, half = 0;

#if EPX_TWO_HALVES
    brain = epx_add_two_bfloat16(a, b);
    half = epx_add_two_float16(a, b);
#else
    for (int shift = 0; shift < 32; shift += 16) {
        uint16_t one = (uint16_t)(a >> shift), other = (uint16_t)(b >> shift);

        brain |= (uint32_t)epx_bfloat16_of_float(
                     epx_add_float(epx_float_of_bfloat16(one), epx_float_of_bfloat16(other)))
                 << shift;
        half |= (uint32_t)epx_float16_of_float(
                    epx_add_float(epx_float_of_float16(one), epx_float_of_float16(other)))
                << shift;
    }
#endif
    out[0] = half_bits((uint16_t)brain, 0x7f80u);
    out[1] = half_bits((uint16_t)(brain >> 16), 0x7f80u);
    out[2] = half_bits((uint16_t)half, 0x7c00u);
    out[3] = half_bits((uint16_t)(half >> 16), 0x7c00u);
}

EPX_HD void step_datatypes(const uint64_t *in, uint64_t *out)
{
    EPX_Datatype datatype = (EPX_Datatype)(in[0] % 12) - 2;

    out[0] = (uint64_t)epx_datatype_bytes(datatype);
    out[1] = (uint64_t)(epx_datatype_adds(datatype) != 0);
}

EPX_HD void step_experts(const uint64_t *in, uint64_t *out)
{
    int32_t ranks = 1 + (int32_t)(in[0] % 65536), experts = 1 + (int32_t)(in[1] % INT32_MAX);
    int32_t ids32[2];

    memcpy(ids32, &in[2], sizeof(ids32));
    out[0] = (uint64_t)epx_first_expert((int32_t)(in[2] % ((uint64_t)ranks + 1)), experts, ranks);
    out[1] = (uint64_t)epx_expert_id(ids32, 32, (int64_t)(in[3] % 2));
    out[2] = (uint64_t)epx_expert_id(in, 64, (int64_t)(in[3] % STEP_IN));
    out[3] = (uint64_t)epx_round_up((int64_t)(in[2] % (1ULL << 40)), 1LL << in[3] % 10);
}

EPX_HD void step_slabs(const uint64_t *in, uint64_t *out)
{
    struct epx_plan_shape shape;
    int64_t pairs = (int64_t)(in[1] % INT32_MAX), rows = (int64_t)(in[2] % INT32_MAX);
    int32_t local = (int32_t)(in[3] % 1024);

    shape.alignment = 1 << in[0] % 16;
    shape.rows_per_expert = in[0] >> 32 & 1 ? 1 + (int64_t)(in[1] >> 40) : 0;
    out[0] = (uint64_t)epx_slab_rows(&shape, pairs);
    out[1] = (uint64_t)epx_slab_limit(&shape, local, rows);
    out[2] = (uint64_t)epx_most_padding(&shape);
    out[3] = (uint64_t)epx_required_rows(&shape, local, rows, pairs);
    out[4] = (uint64_t)epx_used_rows(&shape, pairs, rows);
}

/* Offsets are told of addresses in a block at this one, which nobody reads. */
#define TWIN_BASE ((uintptr_t)1 << 20)
#define TWIN_OFFSET(address) ((uint64_t)((uintptr_t)(address)-TWIN_BASE))

EPX_HD void step_counts(const uint64_t *in, uint64_t *out)
{
    struct epx_count_shape shape = {1 + (int32_t)(in[0] % 100000), 1 + (int32_t)(in[1] % 1000)};
    int32_t source = (int32_t)(in[2] % (uint64_t)shape.num_ranks);
    int32_t *counts = epx_counts_of((int32_t *)TWIN_BASE, shape, source);

    out[0] = epx_count_words(shape);
    out[1] = TWIN_OFFSET(counts);
    out[2] = TWIN_OFFSET(epx_unique_rows(counts, shape));
    out[3] = TWIN_OFFSET(epx_num_tokens(counts, shape));
}

EPX_HD void step_records(const uint64_t *in, uint64_t *out)
{
    struct epx_record_shape shape =
        epx_record_shape(1 + (int32_t)(in[0] % EPX_MAX_TOP_K), (int)(in[1] % 2));
    int32_t *record = epx_record_at((int32_t *)TWIN_BASE, shape, (int64_t)(in[2] % (1 << 24)));

    out[0] = epx_record_bytes(shape);
    out[1] = TWIN_OFFSET(record);
    out[2] = TWIN_OFFSET(epx_record_slots(record));
    out[3] = TWIN_OFFSET(epx_record_experts(record, shape));
    out[4] = TWIN_OFFSET(epx_record_choices(record, shape));
}

EPX_HD void step_wire(const uint64_t *in, uint64_t *out)
{
    struct epx_device_plan plan;
    struct epx_wire_record *record;

    plan.shape.top_k = 1 + (int32_t)(in[0] % EPX_MAX_TOP_K);
    plan.shape.max_tokens = 1 + (int32_t)(in[1] % (1 << 20));
    plan.record_bytes = epx_wire_record_bytes(plan.shape.top_k);
    plan.record_share = plan.shape.max_tokens * plan.record_bytes;
    record = epx_wire_record_at(&plan, (char *)TWIN_BASE, (int32_t)(in[2] % EPX_MOST_DEVICE_RANKS),
                                (int64_t)(in[3] % (uint64_t)plan.shape.max_tokens));
    out[0] = (uint64_t)plan.record_bytes;
    out[1] = TWIN_OFFSET(record);
    out[2] = TWIN_OFFSET(epx_wire_pairs_at(record, EPX_PAIRS_BEHIND));
    out[3] = epx_packed_at(&plan, (int32_t)(in[3] % (uint64_t)plan.shape.max_tokens),
                           (uint32_t)(in[0] % (1 << 20)));
}

EPX_HD void step_segments(const uint64_t *in, uint64_t *out)
{
    struct epx_segments cut = epx_segments_cut((int64_t)(in[0] % (1ULL << (in[3] % 40))),
                                               EPX_SEGMENT_QUANTUM + (int64_t)(in[1] % (1 << 24)));
    int64_t segment = (int64_t)(in[2] % (uint64_t)cut.num);

    out[0] = (uint64_t)cut.bytes;
    out[1] = (uint64_t)cut.num;
    out[2] = (uint64_t)epx_segment_offset(cut, segment);
    out[3] = (uint64_t)epx_segment_length(cut, segment);
}

EPX_HD void step_control(const uint64_t *in, uint64_t *out)
{
    int32_t ranks = 1 + (int32_t)(in[0] % EPX_MOST_DEVICE_RANKS);
    int32_t source = (int32_t)(in[1] % (uint64_t)ranks);
    uint32_t epoch = (uint32_t)in[2];
    char *control = (char *)TWIN_BASE;

    out[0] = TWIN_OFFSET(epx_control_arrived(control, source));
    out[1] = TWIN_OFFSET(epx_control_credited(control, ranks, source));
    out[2] = TWIN_OFFSET(epx_control_ready(control, ranks, epoch, source));
    out[3] = TWIN_OFFSET(epx_control_counts(control, ranks, epoch, source));
    out[4] = epx_control_bytes(ranks) ^ TWIN_OFFSET(epx_control_begun(control, ranks, source));
}

EPX_HD void step_slices(const uint64_t *in, uint64_t *out)
{
    struct epx_slices slices =
        epx_slices_of((int64_t)(in[0] % (1ULL << (in[3] % 24))), (int64_t)(in[1] % 20000),
                      1 + (int64_t)(in[2] % 10000));

    out[0] = (uint64_t)slices.num;
    out[1] = (uint64_t)slices.bytes;
}

EPX_HD void twin_run(enum twin_step step, const uint64_t *in, uint64_t *out)
{
    for (int i = 0; i < STEP_OUT; i++)
        out[i] = 0;
    switch (step) {
    case STEP_CONVERSIONS: step_conversions(in, out); break;
    case STEP_ARITHMETIC: step_arithmetic(in, out); break;
    case STEP_HALVES: step_halves(in, out); break;
    case STEP_DATATYPES: step_datatypes(in, out); break;
    case STEP_EXPERTS: step_experts(in, out); break;
    case STEP_SLABS: step_slabs(in, out); break;
    case STEP_COUNTS: step_counts(in, out); break;
    case STEP_RECORDS: step_records(in, out); break;
    case STEP_WIRE: step_wire(in, out); break;
    case STEP_SEGMENTS: step_segments(in, out); break;
    case STEP_CONTROL: step_control(in, out); break;
    default: step_slices(in, out);
    }
}

/* Rows one behind the other from `shift` bytes into a block on, in memory of the host. */
struct twin_rows {
    EPX_Datatype datatype;
    int num, weighted, shifts; /* packs are shifted, also of rows that are aligned */
    int64_t row_bytes, shift;
    const char *from; /* block of the rows that are read */
    size_t from_bytes;
    const float *weights; /* [num] */
    char *to;             /* block that is written */
    size_t to_bytes;
    const int32_t *nodes; /* [num + 1] of the rows, and of the one who adds */
};

#ifdef __cplusplus
extern "C" {
#endif
/* NULL if there is a device to run on, else the reason. */
const char *twin_lacks(void);
/* The functions below return NULL, or the error of CUDA. twin_run_on_device makes a step on n
 * inputs. */
const char *twin_run_on_device(enum twin_step step, int64_t n, const uint64_t *in, uint64_t *out);
/* With one warp: add num rows to one; add them by nodes; store one row to num places. */
const char *twin_sum_rows(const struct twin_rows *rows);
const char *twin_sum_nodes(const struct twin_rows *rows);
const char *twin_store_row(const struct twin_rows *rows);
#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_kernels.c - what is written once for host and device gives the same bits on both: layouts,
 * conversions, sums of rows. The host is compared with a reference too, even where there is no
 * device.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/host/rows.h"
#include "support/reference.h"
#include "support/suite.h"
#include "unit/kernels/twins.h"

enum { INPUTS = 200000 };

static const char *lacks; /* why there is no device */

static void *take(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);

    ck_assert_ptr_nonnull(memory);
    return memory;
}

/* Makes one step on n inputs, on host and device; returns the outputs of the host. */
static uint64_t *run_both(enum twin_step step, int64_t n, const uint64_t *in)
{
    uint64_t *here = take((size_t)n * STEP_OUT * sizeof(*here));
    uint64_t *there = take((size_t)n * STEP_OUT * sizeof(*there));
    const char *error;

    for (int64_t i = 0; i < n; i++)
        twin_run(step, in + i * STEP_IN, here + i * STEP_OUT);
    error = lacks ? NULL : twin_run_on_device(step, n, in, there);
    EXPECT(!error, "%s", error);
    for (int64_t i = 0; !lacks && i < n * STEP_OUT; i++)
        if (!EXPECT(here[i] == there[i], "step %d, input %lld, word %d: %llx here, %llx there",
                    (int)step, (long long)i / STEP_OUT, (int)(i % STEP_OUT),
                    (unsigned long long)here[i], (unsigned long long)there[i]))
            break;
    free(there);
    return here;
}

START_TEST(random_input_gives_the_same_words)
{
    uint64_t *in = take(INPUTS * STEP_IN * sizeof(*in));

    for (uint64_t i = 0; i < INPUTS * STEP_IN; i++)
        in[i] = data_hash(17, (uint64_t)_i, i);
    free(run_both((enum twin_step)_i, INPUTS, in));
    free(in);
    SETTLE();
}
END_TEST

/* Whether a conversion to 16 bits agrees with the reference; NaNs have several bit patterns. */
static int is_rounded(EPX_Datatype datatype, uint32_t bits, uint16_t half)
{
    float value = epx_float_of_bits(bits);
    uint16_t wanted;

    ref_store(datatype, &wanted, 0, (double)value);
    return isnan(value) ? isnan(ref_load(datatype, &half, 0)) : half == wanted;
}

static int is_read(EPX_Datatype datatype, uint16_t half, uint64_t bits)
{
    double value = (double)epx_float_of_bits((uint32_t)bits), wanted = ref_load(datatype, &half, 0);

    return isnan(wanted) ? isnan(value) : memcmp(&value, &wanted, sizeof(value)) == 0;
}

static void check_conversions(int64_t n, const uint64_t *in)
{
    uint64_t *out = run_both(STEP_CONVERSIONS, n, in);

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)in[i * STEP_IN];
        const uint64_t *words = out + i * STEP_OUT;

        if (!EXPECT(is_read(EPX_FLOAT16, (uint16_t)bits, words[0]) &&
                        is_read(EPX_BFLOAT16, (uint16_t)bits, words[1]) &&
                        is_rounded(EPX_FLOAT16, bits, (uint16_t)words[2]) &&
                        is_rounded(EPX_BFLOAT16, bits, (uint16_t)words[3]),
                    "bits %08x", bits))
            break;
    }
    free(out);
}

/* All 16-bit numbers; all floats of any sign and exponent with mantissas near every tie. */
START_TEST(numbers_are_converted_alike)
{
    static const uint32_t lows[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x2000,
                                    0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
    const int64_t num = (int64_t)(sizeof(lows) / sizeof(*lows)), n = 65536 * (num + 1);
    uint64_t *in = take((size_t)n * STEP_IN * sizeof(*in));

    for (int64_t i = 0; i < n; i++) {
        uint64_t high = (uint64_t)i % 65536;

        in[i * STEP_IN] = i < 65536 ? high : high << 16 | lows[i / 65536 - 1];
    }
    check_conversions(n, in);
    free(in);
    SETTLE();
}
END_TEST

/* Infinities, zeros, subnormals, the largest and NaNs, each with each. */
START_TEST(special_numbers_are_added_alike)
{
    static const uint64_t doubles[] = {0,
                                       1,
                                       0x000fffffffffffff,
                                       0x0010000000000000,
                                       0x3ff0000000000000,
                                       0x7fefffffffffffff,
                                       0x7ff0000000000000,
                                       0x7ff8000000000000};
    static const uint32_t floats[] = {0,          1,          0x007fffff, 0x00800000,
                                      0x3f800000, 0x7f7fffff, 0x7f800000, 0x7fc00000};
    uint64_t in[16 * 16 * STEP_IN] = {0};

    for (int i = 0; i < 16 * 16; i++)
        for (int side = 0; side < 2; side++) {
            int n = side ? i / 16 : i % 16;
            uint64_t sign = n % 2 ? (uint64_t)1 << (_i ? 63 : 31) : 0;

            in[i * STEP_IN + side] = (_i ? doubles[n / 2] : floats[n / 2]) | sign;
        }
    free(run_both(STEP_ARITHMETIC, 16 * 16, in));
    SETTLE();
}
END_TEST

/* Halves of which one is up to 13 powers of 2 smaller, so that most sums are rounded; in turn both
 * of bfloat16 and of float16. */
START_TEST(halves_are_added_alike)
{
    enum { FAR = 14 };
    uint64_t *in = take(INPUTS * STEP_IN * sizeof(*in));

    for (uint64_t i = 0; i < INPUTS; i++) {
        uint32_t exponents = i % 2 ? 0x7c007c00u : 0x7f807f80u, one = i % 2 ? 0x400u : 0x80u;
        uint32_t a = (uint32_t)data_hash(9, 1, i), other = (uint32_t)data_hash(9, 2, i);
        uint32_t far = (uint32_t)(i / 2 % FAR) * one;

        in[i * STEP_IN] = a;
        in[i * STEP_IN + 1] =
            (other & ~exponents) | (((a & exponents) - (far << 16 | far)) & exponents);
    }
    free(run_both(STEP_HALVES, INPUTS, in));
    free(in);
    SETTLE();
}
END_TEST

/* A float product or sum, rounded from the double one, which loses nothing that matters. */
START_TEST(products_and_sums_are_rounded_to_nearest_even)
{
    uint64_t in[STEP_IN] = {0}, out[STEP_OUT];

    for (uint64_t i = 0; i < INPUTS; i++) {
        uint32_t low = (uint32_t)(data_hash(3, 1, i) % (1u << 23)) | (uint32_t)(120 + i % 20) << 23;
        uint32_t other =
            (uint32_t)(data_hash(3, 2, i) % (1u << 23)) | 127u << 23 | (uint32_t)(i & 32) << 26;
        double a = (double)epx_float_of_bits(low), b = (double)epx_float_of_bits(other);

        in[0] = low;
        in[1] = other;
        twin_run(STEP_ARITHMETIC, in, out);
        EXPECT(out[0] == epx_float_bits((float)(a * b)), "%a * %a", a, b);
        EXPECT(out[1] == epx_float_bits((float)(a + b)), "%a + %a", a, b);
    }
    SETTLE();
}
END_TEST

/* Marks words of a control window as taken, each once. */
static void mark(unsigned char *taken, int32_t ranks, const uint64_t *words, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t at = TWIN_OFFSET(words + i) / sizeof(uint64_t);

        ck_assert_uint_lt(at, epx_control_bytes(ranks) / sizeof(uint64_t));
        ck_assert_int_eq(taken[at]++, 0);
    }
}

START_TEST(control_words_lie_apart)
{
    char *control = (char *)TWIN_BASE;

    for (int32_t ranks = 1; ranks <= EPX_MOST_DEVICE_RANKS; ranks += ranks < 10 ? 1 : 59) {
        unsigned char *taken = take(epx_control_bytes(ranks));

        mark(taken, ranks, (uint64_t *)(void *)control, EPX_CONTROL_HEADER);
        for (int32_t s = 0; s < ranks; s++) {
            mark(taken, ranks, epx_control_arrived(control, s), 1);
            mark(taken, ranks, epx_control_credited(control, ranks, s), 1);
            mark(taken, ranks, epx_control_progress(control, ranks, s), EPX_SENDER_RUNS);
            mark(taken, ranks, epx_control_begun(control, ranks, s), 1);
            for (uint32_t bank = 0; bank < 2; bank++) {
                mark(taken, ranks, epx_control_ready(control, ranks, 6 + bank, s), EPX_READY_WORDS);
                mark(taken, ranks, epx_control_counts(control, ranks, 6 + bank, s), 2 * ranks);
                mark(taken, ranks, epx_control_lists(control, ranks, 6 + bank, s), EPX_LIST_WORDS);
            }
        }
        for (int32_t i = 0; i < 2 * EPX_MOST_EDGES; i++) {
            const uint32_t bank = 6 + (uint32_t)i % 2;

            mark(taken, ranks, epx_control_edge(control, ranks, bank, i / 2), 2);
            mark(taken, ranks, epx_control_grant(control, ranks, bank, i / 2), 2);
        }
        free(taken);
    }
}
END_TEST

START_TEST(slices_cover_a_row_once)
{
    for (uint64_t i = 0; i < INPUTS; i++) {
        int64_t bytes = (int64_t)(data_hash(5, 1, i) % (1ULL << i % 24));
        int64_t rows = (int64_t)(data_hash(5, 2, i) % 3000), warps = 1 + (int64_t)(i * 7 % 9000);
        struct epx_slices slices = epx_slices_of(bytes, rows, warps);

        ck_assert_int_ge(slices.num, 1);
        ck_assert_int_eq(slices.bytes % EPX_SLICE_QUANTUM, 0);
        ck_assert_int_ge(slices.num * slices.bytes, bytes);
        ck_assert(slices.num == 1 || (slices.num - 1) * slices.bytes < bytes);
        ck_assert(slices.num == 1 || slices.num * rows <= warps);
    }
}
END_TEST

START_TEST(records_on_the_wire_have_room_for_all_pairs)
{
    for (int32_t k = 1; k <= EPX_MAX_TOP_K; k++) {
        int64_t bytes = epx_wire_record_bytes(k), pair = (int64_t)sizeof(struct epx_wire_pair);

        ck_assert_int_eq(bytes % 16, 0);
        ck_assert_int_ge(bytes, (int64_t)sizeof(struct epx_wire_record) + k * pair);
        ck_assert_int_lt(bytes, (int64_t)sizeof(struct epx_wire_record) + (k + 2) * pair);
    }
}
END_TEST

/* Records come first and pairs behind them, also where their numbers are the largest. */
START_TEST(packed_records_lie_before_all_pairs)
{
    static const int32_t most[] = {1, 2, 7, 1000, INT32_MAX};

    for (int i = 0; i < 5; i++) {
        struct epx_device_plan plan = {.shape.max_tokens = most[i]};
        int64_t head = sizeof(struct epx_wire_record), pair = sizeof(struct epx_wire_pair);

        for (int j = 0; j < 3; j++) {
            int32_t row = j == 0 ? 0 : j == 1 ? most[i] / 2 : most[i] - 1;

            ck_assert_int_eq(row * head + epx_packed_at(&plan, row, 0) * pair, most[i] * head);
            ck_assert_int_eq(row * head + epx_packed_at(&plan, row, (uint32_t)row) * pair,
                             most[i] * head + row * pair);
        }
    }
}
END_TEST

/* Blocks around rows of random numbers, the written one filled with a pattern. */
static struct twin_rows make_rows(EPX_Datatype datatype, int count, int num, int shift)
{
    struct data data = {91, datatype, count, DATA_NUMBERS};
    int64_t row_bytes = (int64_t)data_row_bytes(&data), all = (num ? num : 1) * row_bytes;
    int64_t element = (int64_t)data_size(datatype);
    struct twin_rows rows = {
        .datatype = datatype, .num = num, .row_bytes = row_bytes, .shift = shift * element};
    char *from;
    float *weights = take((size_t)num * sizeof(*weights));

    rows.from_bytes = rows.to_bytes = (size_t)(rows.shift + all + 64);
    from = take(rows.from_bytes);
    rows.to = take(rows.to_bytes);
    memset(rows.to, 0x5a, rows.to_bytes);
    for (int i = 0; i < num; i++) {
        data_row(&data, num, i, from + rows.shift + i * row_bytes);
        weights[i] = data_weight(92, count, i);
    }
    rows.from = from;
    rows.weights = weights;
    return rows;
}

static void free_rows(struct twin_rows *rows)
{
    free((void *)(uintptr_t)rows->from);
    free((void *)(uintptr_t)rows->weights);
    free(rows->to);
}

/* Sums on the host the pairs of a record, here one slot behind the other. */
static void sum_on_host(const struct twin_rows *rows, char *to)
{
    int32_t record[EPX_RECORD_HEADER + 2 * EPX_MAX_TOP_K] = {0};
    struct epx_plan plan = {.shape = {.top_k = rows->num},
                            .record_shape = epx_record_shape(rows->num, 0)};
    struct epx_expert_rows op = {
        .datatype = rows->datatype, .partial = rows->datatype, .rows_in = rows->from + rows->shift};

    if (rows->num == 0) {
        memset(to + rows->shift, 0, (size_t)rows->row_bytes);
        return;
    }
    op.cut = epx_segments_cut(rows->row_bytes, rows->row_bytes);
    op.weights_in = rows->weighted ? rows->weights : NULL;
    record[EPX_RECORD_SLOTS] = record[EPX_RECORD_PAIRS] = rows->num;
    for (int i = 0; i < rows->num; i++)
        epx_record_slots(record)[i] = i;
    epx_sum_row_pairs(&plan, &op, record, 0, to + rows->shift);
}

static double term(const struct twin_rows *rows, int row, int64_t i)
{
    double value = ref_load(rows->datatype, rows->from + rows->shift + row * rows->row_bytes, i);
    double product = rows->weighted ? (double)rows->weights[row] * value : value;

    return rows->datatype == EPX_FLOAT64 ? product : (double)(float)product;
}

static void sum_by_reference(const struct twin_rows *rows, char *to)
{
    int64_t elements = rows->row_bytes / (int64_t)data_size(rows->datatype);

    for (int64_t i = 0; i < elements; i++) {
        double sum = rows->num ? term(rows, 0, i) : 0;

        for (int r = 1; r < rows->num; r++) {
            sum += term(rows, r, i);
            sum = rows->datatype == EPX_FLOAT64 ? sum : (double)(float)sum;
        }
        ref_store(rows->datatype, to + rows->shift, i, sum);
    }
}

static void check_sum(struct twin_rows *rows, int count)
{
    char *here = take(rows->to_bytes), *wanted = take(rows->to_bytes);
    const char *error;

    memcpy(here, rows->to, rows->to_bytes);
    memcpy(wanted, rows->to, rows->to_bytes);
    sum_by_reference(rows, wanted);
    sum_on_host(rows, here);
    EXPECT(memcmp(here, wanted, rows->to_bytes) == 0,
           "here: type %d, %d rows of %d from %d, weights %d", rows->datatype, rows->num, count,
           (int)rows->shift, rows->weighted);
    error = lacks ? NULL : twin_sum_rows(rows);
    EXPECT(!error, "%s", error);
    EXPECT(lacks || memcmp(rows->to, wanted, rows->to_bytes) == 0,
           "there: type %d, %d rows of %d from %d, weights %d, shifts %d", rows->datatype,
           rows->num, count, (int)rows->shift, rows->weighted, rows->shifts);
    free(here);
    free(wanted);
}

static const int counts[] = {1, 2, 7, 8, 31, 64, 1000, 1024, 4099};
static const int row_nums[] = {0, 1, 2, 3, 4, 5, 8, 31, 32, 33, 63, 64};

#define NUM(array) ((int)(sizeof(array) / sizeof(*(array))))

/* Aligned (shift 0) and not, products or none, packs where they lie and shifted. */
START_TEST(rows_are_summed_alike)
{
    for (int c = 0; c < NUM(counts); c++)
        for (int n = 0; n < NUM(row_nums); n++)
            for (int way = 0; way < 8; way++) {
                struct twin_rows rows =
                    make_rows(EPX_FLOAT16 + _i, counts[c], row_nums[n], way % 2);

                rows.weighted = way / 2 % 2;
                rows.shifts = way / 4;
                check_sum(&rows, counts[c]);
                free_rows(&rows);
            }
    SETTLE();
}
END_TEST

/* Sums on the host what a home adds in combine: row i is of rank i; the rank behind them is the
 * home. */
static void sum_nodes_on_host(const struct twin_rows *rows, char *to)
{
    int32_t ranks[EPX_MAX_TOP_K];
    const char *parts[EPX_MAX_TOP_K];
    struct epx_plan plan = {.rank = rows->num};
    struct epx_home_rows op = {.datatype = rows->datatype,
                               .partial = rows->datatype,
                               .node = rows->nodes,
                               .rows = to + rows->shift};

    op.cut = epx_segments_cut(rows->row_bytes, rows->row_bytes);
    for (int i = 0; i < rows->num; i++) {
        ranks[i] = i;
        parts[i] = rows->from + rows->shift + i * rows->row_bytes;
    }
    epx_sum_token_rows(&plan, &op, 0, 0, (struct epx_token_parts){parts, ranks, rows->num});
}

static double rounded_sum(const struct twin_rows *rows, double a, double b)
{
    return rows->datatype == EPX_FLOAT64 ? a + b : (double)(float)(a + b);
}

/* One element of the sum of a node's rows; first is the node's first row, *next becomes the first
 * row of the next node. */
static double node_by_reference(const struct twin_rows *rows, int first, int64_t i, int *next)
{
    double sum = term(rows, first, i), rounded;
    int r = first + 1;

    for (; r < rows->num && rows->nodes[r] == rows->nodes[first]; r++)
        sum = rounded_sum(rows, sum, term(rows, r, i));
    *next = r;
    if (rows->nodes[first] == rows->nodes[rows->num])
        return sum;
    ref_store(rows->datatype, &rounded, 0, sum);
    return ref_load(rows->datatype, &rounded, 0);
}

static void sum_nodes_by_reference(const struct twin_rows *rows, char *to)
{
    int64_t elements = rows->row_bytes / (int64_t)data_size(rows->datatype);

    for (int64_t i = 0; i < elements; i++) {
        int r = 0;
        double sum = rows->num ? node_by_reference(rows, 0, i, &r) : 0;

        while (r < rows->num)
            sum = rounded_sum(rows, sum, node_by_reference(rows, r, i, &r));
        ref_store(rows->datatype, to + rows->shift, i, sum);
    }
}

static void check_sum_of_nodes(struct twin_rows *rows, int count)
{
    char *here = take(rows->to_bytes), *wanted = take(rows->to_bytes);
    const char *error = NULL;

    memcpy(here, rows->to, rows->to_bytes);
    memcpy(wanted, rows->to, rows->to_bytes);
    sum_nodes_by_reference(rows, wanted);
    sum_nodes_on_host(rows, here);
    EXPECT(memcmp(here, wanted, rows->to_bytes) == 0, "here: type %d, %d rows of %d from %d",
           rows->datatype, rows->num, count, (int)rows->shift);
    if (!lacks)
        error = twin_sum_nodes(rows);
    EXPECT(!error, "%s", error);
    EXPECT(lacks || memcmp(rows->to, wanted, rows->to_bytes) == 0,
           "there: type %d, %d rows of %d from %d", rows->datatype, rows->num, count,
           (int)rows->shift);
    free(here);
    free(wanted);
}

/* Nodes of one row, of all rows, and of some; the home is on one of them or on none. */
START_TEST(nodes_are_summed_alike)
{
    int32_t nodes[EPX_MAX_TOP_K + 1];

    for (int c = 0; c < NUM(counts); c++)
        for (int n = 0; n < NUM(row_nums); n++)
            for (int way = 0; way < 6; way++) {
                const int sizes[] = {1, EPX_MAX_TOP_K, 3};
                struct twin_rows rows =
                    make_rows(EPX_FLOAT16 + _i, counts[c], row_nums[n], way % 2);

                for (int r = 0; r < rows.num; r++)
                    nodes[r] = r / sizes[way / 2];
                nodes[rows.num] = counts[c] % 3;
                rows.nodes = nodes;
                check_sum_of_nodes(&rows, counts[c]);
                free_rows(&rows);
            }
    SETTLE();
}
END_TEST

/* Checks the store of one row to several places at any alignment; the reference is memcpy. */
static void check_store(struct twin_rows *rows)
{
    char *wanted = take(rows->to_bytes);
    const char *error;

    memcpy(wanted, rows->to, rows->to_bytes);
    for (int i = 0; i < rows->num; i++)
        memcpy(wanted + rows->shift + i * rows->row_bytes, rows->from + rows->shift,
               (size_t)rows->row_bytes);
    error = twin_store_row(rows);
    EXPECT(!error, "%s", error);
    EXPECT(memcmp(rows->to, wanted, rows->to_bytes) == 0, "%d places of %d bytes from %d",
           rows->num, (int)rows->row_bytes, (int)rows->shift);
    free(wanted);
}

START_TEST(a_row_is_stored_to_all_its_places)
{
    for (int c = 0; !lacks && c < NUM(counts); c++)
        for (int n = 0; n < NUM(row_nums); n++)
            for (int shift = 0; shift < 16; shift += 1 + shift % 3) {
                struct twin_rows rows = make_rows(EPX_BYTE, counts[c], row_nums[n], shift);

                check_store(&rows);
                free_rows(&rows);
            }
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tcase = tcase_create("kernels");

    lacks = twin_lacks();
    if (lacks)
        printf("%s: the host's side alone, against the reference\n", lacks);
    tcase_add_loop_test(tcase, random_input_gives_the_same_words, 0, NUM_STEPS);
    tcase_add_test(tcase, numbers_are_converted_alike);
    tcase_add_loop_test(tcase, special_numbers_are_added_alike, 0, 2);
    tcase_add_test(tcase, halves_are_added_alike);
    tcase_add_test(tcase, products_and_sums_are_rounded_to_nearest_even);
    tcase_add_test(tcase, control_words_lie_apart);
    tcase_add_test(tcase, slices_cover_a_row_once);
    tcase_add_test(tcase, records_on_the_wire_have_room_for_all_pairs);
    tcase_add_test(tcase, packed_records_lie_before_all_pairs);
    tcase_add_loop_test(tcase, rows_are_summed_alike, 0, 4);
    tcase_add_loop_test(tcase, nodes_are_summed_alike, 0, 4);
    tcase_add_test(tcase, a_row_is_stored_to_all_its_places);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

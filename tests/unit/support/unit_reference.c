/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_reference.c - the reference itself, against cases worked out by hand and against the
 * definition of the order by sorting.
 */
#include "support/reference.h"

#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

/* Two ranks, three experts (rank 0 owns 0, rank 1 owns 1 and 2), two choices. */
static int64_t ids_of_0[] = {2, 0, 1, 1, -1, 2}, ids_of_1[] = {0, 7, 2, 2};
static int64_t *const ids[] = {ids_of_0, ids_of_1};
static const int tokens[] = {3, 2};
static int64_t capacity[2];

static struct ref *make(EPX_Layout layout, EPX_Overflow overflow, int alignment)
{
    struct ref_input input = {.ranks = 2,
                              .experts = 3,
                              .top_k = 2,
                              .max_tokens = 3,
                              .alignment = alignment,
                              .layout = layout,
                              .overflow = overflow,
                              .recv_capacity = capacity,
                              .tokens = tokens,
                              .ids = ids};

    input.rows_per_expert = layout == EPX_EXPERT_SLAB ? 3 : 0;
    return ref_create(&input);
}

static void check32(const int32_t *got, const int32_t *want, int n)
{
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(got[i], want[i]);
}

static void check_empty(const struct ref_rank *at, int experts)
{
    static const int32_t none[] = {-1, -1, -1, -1, -1, -1}, zeros[2];

    check32(at->slots, none, 6);
    check32(at->rank_counts, zeros, 2);
    check32(at->expert_counts, zeros, experts);
    for (int e = 0; e <= experts; e++)
        ck_assert_int_eq(at->expert_offsets[e], 0);
    ck_assert_int_eq(at->num_rows, 0);
}

START_TEST(expert_major_by_hand)
{
    static const int32_t slots0[] = {4, 0, 0, 1, -1, 5}, slots1[] = {1, -1, 6, 7, -1, -1};
    static const int32_t ranks1[] = {0, 0, -1, -1, 0, 0, 1, 1};
    static const int32_t tokens1[] = {1, 1, -1, -1, 0, 2, 1, 1};
    static const int32_t unique1[] = {3, 1};
    struct ref *ref = make(EPX_EXPERT_MAJOR, EPX_OVERFLOW_ERROR, 4);

    check32(ref->rank[0].slots, slots0, 6);
    check32(ref->rank[1].slots, slots1, 6);
    check32(ref->rank[1].row_ranks, ranks1, 8);
    check32(ref->rank[1].row_tokens, tokens1, 8);
    check32(ref->rank[1].rank_counts, unique1, 2);
    ck_assert_int_eq(ref->rank[0].num_rows, 4);
    ck_assert_int_eq(ref->rank[1].num_rows, 8);
    ck_assert_int_eq(ref->rank[1].expert_counts[0], 2);
    ck_assert_int_eq(ref->rank[1].expert_counts[1], 4);
    ck_assert_int_eq(ref->rank[1].expert_offsets[1], 4);
    ck_assert_int_eq(ref->rank[1].bad_ids, 1);
    ck_assert_int_eq(ref->rank[1].bad_token, 0);
    ck_assert_int_eq(ref->rank[1].bad_choice, 1);
    ck_assert_int_eq(ref->rank[1].capacity, 2 * 3 * 2 + 2 * 3);
    ref_free(ref);
}
END_TEST

START_TEST(rank_major_by_hand)
{
    static const int32_t slots0[] = {0, 0, 1, 1, -1, 2}, slots1[] = {1, -1, 3, 3, -1, -1};
    static const int32_t experts1[] = {1, -1, 0, 0, -1, 1, 1, 1};
    struct ref *ref = make(EPX_RANK_MAJOR, EPX_OVERFLOW_ERROR, 1);

    check32(ref->rank[0].slots, slots0, 6);
    check32(ref->rank[1].slots, slots1, 6);
    check32(ref->rank[1].row_expert_ids, experts1, 8);
    ck_assert_int_eq(ref->rank[0].num_rows, 2);
    ck_assert_int_eq(ref->rank[1].num_rows, 4);
    ck_assert_int_eq(ref->rank[1].expert_counts[1], 4);
    ck_assert_int_eq(ref->rank[1].capacity, 6);
    ref_free(ref);
}
END_TEST

START_TEST(dropping_by_hand)
{
    static const int32_t slots0[] = {4, 0, 0, 1, -1, -1}, slots1[] = {-1, -1, -1, -1, -1, -1};
    struct ref *ref;

    capacity[0] = 1;
    capacity[1] = 5;
    ref = make(EPX_EXPERT_MAJOR, EPX_OVERFLOW_DROP, 4);
    check32(ref->rank[0].slots, slots0, 6);
    check32(ref->rank[1].slots, slots1, 6);
    ck_assert_int_eq(ref->rank[1].num_rows, 5);
    ck_assert_int_eq(ref->rank[1].required_rows, 8);
    ck_assert_int_eq(ref->rank[1].expert_counts[1], 1);
    ck_assert_int_eq(ref->rank[1].rank_counts[0], 3);
    ck_assert_int_eq(ref->rank[0].dropped_rows, 1);
    ck_assert_int_eq(ref->rank[1].dropped_rows, 3);
    ck_assert_int_eq(ref->truncated, 0);
    ref_free(ref);
    ref = make(EPX_EXPERT_MAJOR, EPX_OVERFLOW_ERROR, 4);
    ck_assert_int_eq(ref->truncated, 1);
    ck_assert_int_eq(ref->rank[1].required_rows, 8);
    check_empty(&ref->rank[0], 1);
    check_empty(&ref->rank[1], 2);
    ref_free(ref);
    capacity[0] = capacity[1] = 0;
}
END_TEST

/* Slabs of three rows: the last pair of expert 2 has no room. */
START_TEST(slabs_by_hand)
{
    static const int32_t slots0[] = {3, 0, 0, 1, -1, 4}, slots1[] = {1, -1, 5, -1, -1, -1};
    static const int32_t ranks1[] = {0, 0, -1, 0, 0, 1}, tokens1[] = {1, 1, -1, 0, 2, 1};
    struct ref *ref = make(EPX_EXPERT_SLAB, EPX_OVERFLOW_DROP, 1);

    check32(ref->rank[0].slots, slots0, 6);
    check32(ref->rank[1].slots, slots1, 6);
    check32(ref->rank[1].row_ranks, ranks1, 6);
    check32(ref->rank[1].row_tokens, tokens1, 6);
    for (int e = 0; e <= 2; e++)
        ck_assert_int_eq(ref->rank[1].expert_offsets[e], 3 * e);
    ck_assert_int_eq(ref->rank[0].num_rows, 3);
    ck_assert_int_eq(ref->rank[0].status_rows, 2);
    ck_assert_int_eq(ref->rank[1].num_rows, 6);
    ck_assert_int_eq(ref->rank[1].status_rows, 5);
    ck_assert_int_eq(ref->rank[1].required_rows, 8);
    ck_assert_int_eq(ref->rank[1].expert_counts[1], 3);
    ck_assert_int_eq(ref->rank[1].dropped_rows, 1);
    ck_assert_int_eq(ref->short_expert, 2);
    ck_assert_int_eq(ref->short_pairs, 4);
    ref_free(ref);
    ref = make(EPX_EXPERT_SLAB, EPX_OVERFLOW_ERROR, 1);
    ck_assert_int_eq(ref->truncated, 1);
    ck_assert_int_eq(ref->rank[1].num_rows, 6);
    ck_assert_int_eq(ref->rank[1].expert_offsets[1], 3);
    ck_assert_int_eq(ref->rank[1].expert_counts[1], 0);
    ck_assert_int_eq(ref->rank[1].row_tokens[0], -1);
    ref_free(ref);
}
END_TEST

struct pair {
    int64_t expert;
    int rank, token, choice;
};

static int by_contract(const void *a, const void *b)
{
    const struct pair *p = a, *q = b;
    int64_t keys[][2] = {
        {p->expert, q->expert}, {p->rank, q->rank}, {p->token, q->token}, {p->choice, q->choice}};

    for (int i = 0; i < 4; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

enum { RANKS = 4, EXPERTS = 10, TOP_K = 3, TOKENS = 9 };

static int gather_pairs(const struct ref_input *in, int owner, struct pair *pairs)
{
    int n = 0;

    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < in->tokens[r] * TOP_K; i++)
            if (ref_owner(in, in->ids[r][i]) == owner)
                pairs[n++] = (struct pair){in->ids[r][i], r, i / TOP_K, i % TOP_K};
    qsort(pairs, (size_t)n, sizeof(*pairs), by_contract);
    return n;
}

START_TEST(rows_are_in_sorted_order)
{
    int64_t numbers[RANKS][TOKENS * TOP_K], no_capacity[RANKS] = {0};
    int64_t *const all[] = {numbers[0], numbers[1], numbers[2], numbers[3]};
    static const int counts[] = {9, 0, 5, 7};
    struct ref_input input = {.ranks = RANKS,
                              .experts = EXPERTS,
                              .top_k = TOP_K,
                              .max_tokens = TOKENS,
                              .alignment = 1,
                              .layout = EPX_EXPERT_MAJOR,
                              .overflow = EPX_OVERFLOW_ERROR,
                              .recv_capacity = no_capacity,
                              .tokens = counts,
                              .ids = all};
    struct pair pairs[RANKS * TOKENS * TOP_K];
    struct ref *ref;

    for (int i = 0; i < RANKS * TOKENS * TOP_K; i++)
        numbers[i / (TOKENS * TOP_K)][i % (TOKENS * TOP_K)] =
            data_below(3, 4, (uint64_t)i, EXPERTS);
    ref = ref_create(&input);
    for (int d = 0; d < RANKS; d++) {
        int n = gather_pairs(&input, d, pairs);

        ck_assert_int_eq(ref->rank[d].num_rows, n);
        for (int row = 0; row < n; row++) {
            const struct pair *p = &pairs[row];

            ck_assert_int_eq(ref->rank[d].row_ranks[row], p->rank);
            ck_assert_int_eq(ref->rank[d].row_tokens[row], p->token);
            ck_assert_int_eq(ref->rank[p->rank].slots[p->token * TOP_K + p->choice], row);
        }
    }
    ref_free(ref);
}
END_TEST

START_TEST(numbers_round_to_nearest_even)
{
    static const struct {
        EPX_Datatype datatype;
        double value;
        uint16_t bits;
    } cases[] = {
        {EPX_FLOAT16, 1.0, 0x3c00},          {EPX_FLOAT16, -2.0, 0xc000},
        {EPX_FLOAT16, 65504.0, 0x7bff},      {EPX_FLOAT16, 65519.0, 0x7bff},
        {EPX_FLOAT16, 65520.0, 0x7c00},      {EPX_FLOAT16, 0x1p-24, 0x0001},
        {EPX_FLOAT16, 0x1p-25, 0x0000},      {EPX_FLOAT16, 0x1.8p-25, 0x0001},
        {EPX_FLOAT16, 0x1.002p0, 0x3c00},    {EPX_FLOAT16, 0x1.006p0, 0x3c02},
        {EPX_FLOAT16, -0.0, 0x8000},         {EPX_FLOAT16, 0x1.ff8p-15, 0x03ff},
        {EPX_FLOAT16, 0x1.ffcp-15, 0x0400},  {EPX_BFLOAT16, 1.0, 0x3f80},
        {EPX_BFLOAT16, 0x1.01p0, 0x3f80},    {EPX_BFLOAT16, 0x1.03p0, 0x3f82},
        {EPX_BFLOAT16, 0x1.fep127, 0x7f7f},  {EPX_BFLOAT16, 0x1.ffp127, 0x7f80},
        {EPX_BFLOAT16, 0x1p-133, 0x0001},    {EPX_BFLOAT16, 0x1p-134, 0x0000},
        {EPX_BFLOAT16, -0x1.8p-134, 0x8001},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint16_t bits = 0xabcd;

        ref_store(cases[i].datatype, &bits, 0, cases[i].value);
        ck_assert_msg(bits == cases[i].bits, "case %zu: %04x, not %04x", i, bits, cases[i].bits);
    }
}
END_TEST

/* Plain float arithmetic in the order of the contract, for one token and two ranks. */
START_TEST(combine_by_hand)
{
    const uint64_t seed = 11;
    struct data send = {5, EPX_FLOAT32, 4, DATA_NUMBERS};
    struct ref *ref = make(EPX_EXPERT_MAJOR, EPX_OVERFLOW_ERROR, 4);
    float out[3 * 4], a[4], b[4];

    ref_combine(ref, 0, &send, &seed, out);
    data_row(&send, 1, 4, a);
    data_row(&send, 0, 0, b);
    for (int i = 0; i < 4; i++) {
        volatile float at_0 = data_weight(seed, 0, 0) * b[i], at_1 = data_weight(seed, 1, 4) * a[i];
        volatile float sum = at_0 + at_1;

        ck_assert(memcmp(&out[i], (const void *)&sum, 4) == 0);
    }
    data_row(&send, 1, 0, a);
    data_row(&send, 1, 1, b);
    for (int i = 0; i < 4; i++) {
        volatile float first = data_weight(seed, 1, 0) * a[i];
        volatile float second = data_weight(seed, 1, 1) * b[i], sum = first + second;

        ck_assert(memcmp(&out[4 + i], (const void *)&sum, 4) == 0);
    }
    ref_free(ref);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("reference");
    TCase *tcase = tcase_create("reference");

    tcase_add_test(tcase, expert_major_by_hand);
    tcase_add_test(tcase, rank_major_by_hand);
    tcase_add_test(tcase, dropping_by_hand);
    tcase_add_test(tcase, slabs_by_hand);
    tcase_add_test(tcase, rows_are_in_sorted_order);
    tcase_add_test(tcase, numbers_round_to_nearest_even);
    tcase_add_test(tcase, combine_by_hand);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

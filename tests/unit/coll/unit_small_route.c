/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_small_route.c - which routes and operations are small: the limits on ranks, choices, pairs,
 * tokens, experts and shared memory, each just within and just beyond. It needs no GPU.
 */
#include "coll/device/direct/small_route.h"
#include "base/jitter.h"
#include "core/comm.h"
#include "kernels/small_parts.h"
#include "support/suite.h"
#include "kernels/args/bank_args.h"

static char *windows[1];

/* Words that two ids of a source take in a bank, those of all sources. */
static int64_t id_words(const struct epx_plan_shape *shape, int ranks)
{
    return (int64_t)ranks * epx_ids_stride(shape) / EPX_IDS_IN_WORD;
}

struct shape {
    int ranks, experts, top_k, max_tokens;
    int few, small; /* whether operations, and routings, may be small */
};

static const struct shape shapes[] = {
    {1, 256, 8, 128, 1, 1},  {2, 256, 8, 128, 1, 1},  {2, 256, 8, 256, 1, 1},
    {2, 256, 8, 257, 1, 0},  {8, 256, 8, 64, 1, 1},   {8, 256, 8, 65, 1, 0},
    {64, 256, 8, 8, 1, 1},   {64, 256, 8, 9, 1, 0},   {65, 256, 8, 1, 0, 0},
    {64, 64, 32, 2, 1, 1},   {64, 64, 33, 1, 0, 0},   {2, 256, 32, 64, 1, 1},
    {2, 256, 33, 1, 0, 0},   {2, 1024, 8, 128, 1, 1}, {2, 1025, 8, 128, 1, 0},
    {2, 256, 1, 1024, 1, 1}, {2, 256, 1, 1025, 1, 0}, {2, 256, 8, 4096, 1, 0},
    {2, 256, 8, 4097, 0, 0}, {64, 1024, 1, 1, 1, 0},  {8, 1, 1, 1, 1, 1},
};
enum { NUM_SHAPES = (int)(sizeof(shapes) / sizeof(shapes[0])) };

static struct epx_device_plan plan_of(const struct shape *shape)
{
    struct epx_device_plan plan = {0};

    plan.shape.num_experts = shape->experts;
    plan.shape.top_k = shape->top_k;
    plan.shape.max_tokens = shape->max_tokens;
    plan.nodes.num_nodes = 1;
    return plan;
}

/* What is small fits into a block's memory, and its ids into the words of a bank. */
START_TEST(limits_are_where_they_are_said_to_be)
{
    const struct shape *shape = &shapes[_i];
    struct epx_comm comm = {.size = shape->ranks};
    struct epx_device device = {.comm = &comm, .bank = windows};
    const struct epx_device_plan plan = plan_of(shape);
    int few = epx_has_few_pairs(&device, &plan.shape), small = epx_is_small_route(&device, &plan);

    EXPECT(few == shape->few && small == shape->small,
           "%d ranks, %d experts, top-%d, %d tokens: few %d, small %d", shape->ranks,
           shape->experts, shape->top_k, shape->max_tokens, few, small);
    if (small) {
        const struct epx_small_parts parts = epx_small_parts_of(&plan, shape->ranks);

        EXPECT(epx_small_bytes(&parts) <= EPX_SMALL_BYTES, "%d bytes", epx_small_bytes(&parts));
        EXPECT(id_words(&plan.shape, shape->ranks) <= EPX_BANK_WORDS, "%lld words of ids",
               (long long)id_words(&plan.shape, shape->ranks));
    }
    device.bank = NULL;
    EXPECT(!epx_has_few_pairs(&device, &plan.shape), "small without banks");
    SETTLE();
}
END_TEST

struct rows {
    enum epx_verb verb;
    int ranks, top_k, max_tokens;
    int64_t row_bytes;
    int pays;
};

static const struct rows all_rows[] = {
    {EPX_VERB_DISPATCH, 2, 8, 4096, 1024, 1},
    {EPX_VERB_DISPATCH, 2, 8, 4097, 1024, 0},
    {EPX_VERB_DISPATCH, 2, 8, 512, 14338, 1},
    {EPX_VERB_DISPATCH, 2, 8, 513, 14338, 0},
    {EPX_VERB_COMBINE, 2, 8, 4096, 14336, 1},
    {EPX_VERB_COMBINE_BACKWARD, 2, 8, 2048, 1024, 1},
    {EPX_VERB_COMBINE_BACKWARD, 2, 8, 2049, 1024, 0},
    {EPX_VERB_COMBINE_BACKWARD, 2, 8, 1024, 8192, 1},
    {EPX_VERB_COMBINE_BACKWARD, 2, 8, 1024, 8208, 0},
    {EPX_VERB_ROUTE_TOKENS, 2, 8, 8192, 0, 1},
    {EPX_VERB_DISPATCH, 1, 8, 8192, 14336, 1},
    {EPX_VERB_DISPATCH, 1, 8, 8193, 16, 0},
    {EPX_VERB_DISPATCH, 1, 1, 8193, 16, 0},
    {EPX_VERB_DISPATCH, 1, 8, 292, 14338, 1},
    {EPX_VERB_DISPATCH, 1, 8, 293, 14338, 0},
    {EPX_VERB_COMBINE, 1, 1, 585, 14338, 1},
    {EPX_VERB_COMBINE, 1, 1, 586, 14338, 0},
    {EPX_VERB_DISPATCH_BACKWARD, 1, 8, 2048, 2002, 1},
    {EPX_VERB_DISPATCH_BACKWARD, 1, 8, 2049, 2002, 0},
    {EPX_VERB_ROUTE_DISPATCH, 1, 8, 512, 14338, 1},
    {EPX_VERB_COMBINE_BACKWARD, 1, 1, 32768, 14336, 1},
    {EPX_VERB_COMBINE_BACKWARD, 1, 1, 32769, 16, 0},
    {EPX_VERB_COMBINE_BACKWARD, 1, 8, 4096, 1024, 1},
    {EPX_VERB_COMBINE_BACKWARD, 1, 8, 1024, 8192, 1},
    {EPX_VERB_COMBINE_BACKWARD, 1, 8, 1024, 8208, 0},
    {EPX_VERB_COMBINE_BACKWARD, 1, 8, 585, 14338, 1},
    {EPX_VERB_COMBINE_BACKWARD, 1, 8, 586, 14338, 0},
    {EPX_VERB_COMBINE_BACKWARD, 1, 8, 1025, 18, 0},
};
enum { NUM_ROWS = (int)(sizeof(all_rows) / sizeof(all_rows[0])) };

START_TEST(it_pays_up_to_what_was_measured)
{
    const struct rows *rows = &all_rows[_i];
    struct epx_comm comm = {.size = rows->ranks};
    struct epx_device device = {.comm = &comm, .bank = windows};
    const struct epx_plan_shape shape = {
        .num_experts = 256, .top_k = rows->top_k, .max_tokens = rows->max_tokens};
    int pays = epx_small_pays(&device, &shape, rows->verb, rows->row_bytes);

    EXPECT(pays == rows->pays, "verb %d, %d ranks, top-%d, %d tokens of %lld bytes: %d",
           (int)rows->verb, rows->ranks, rows->top_k, rows->max_tokens, (long long)rows->row_bytes,
           pays);
    SETTLE();
}
END_TEST

/* With --enable-jitter limits on pairs are lower, so that small tests go both ways. */
static Suite *make_suite(void)
{
    Suite *suite = suite_create("small_route");
    TCase *tcase = tcase_create("small_route");

    tcase_add_loop_test(tcase, limits_are_where_they_are_said_to_be, 0,
                        EPX_JITTERS ? 0 : NUM_SHAPES);
    tcase_add_loop_test(tcase, it_pays_up_to_what_was_measured, 0, EPX_JITTERS ? 0 : NUM_ROWS);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

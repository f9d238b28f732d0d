/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_tuning.c - the ways of operations: which are small, each limit just within and just beyond;
 * what follows rows in messages, and that stages hold them; and that ranks whose GPUs differ decide
 * alike what must be alike. It needs no GPU.
 */
#include <string.h>

#include "coll/tuning.h"
#include "base/jitter.h"
#include "kernels/small_parts.h"
#include "support/suite.h"

/* A GPU of so many multiprocessors that is a rank's own, with room for any rows. */
static struct epx_gpu gpu_of(int sms, int max_sms)
{
    struct epx_gpu gpu = {.sms = sms,
                          .max_sms = max_sms,
                          .has_banks = 1,
                          .bank_bytes = (int64_t)1 << 50,
                          .packets_at = (int64_t)1 << 49,
                          .stage_bytes = (int64_t)64 << 20};

    epx_gpu_share(&gpu, 1, max_sms ? max_sms : 32);
    return gpu;
}

static struct epx_shape shape_of(enum epx_verb verb, int ranks, int top_k, int max_tokens,
                                 int64_t row_bytes)
{
    struct epx_shape shape = {.ranks = ranks,
                              .most_rows = top_k < ranks ? top_k : ranks,
                              .fields = verb == EPX_VERB_ROUTE_TOKENS ? 0 : 1,
                              .datatype = EPX_BFLOAT16,
                              .call_bytes = row_bytes,
                              .row_bytes = row_bytes,
                              .bank_row_bytes = epx_bytes_in_bank(row_bytes),
                              .stage_bytes = (int64_t)64 << 20,
                              .message_rows = ranks};

    epx_shape_set_verb(&shape, verb);
    shape.route.num_experts = 256;
    shape.route.top_k = top_k;
    shape.route.max_tokens = max_tokens;
    return shape;
}

static int is_small(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    return epx_way_of_shape(gpu, shape).banks.senders > 0;
}

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

/* What is small fits into shared memory, and its ids into the words of a bank. */
START_TEST(limits_are_where_they_are_said_to_be)
{
    const struct shape *of = &shapes[_i];
    struct epx_gpu gpu = gpu_of(132, 0);
    struct epx_shape shape = shape_of(EPX_VERB_DISPATCH, of->ranks, of->top_k, of->max_tokens, 16);
    int few, small;

    shape.route.num_experts = of->experts;
    few = is_small(&gpu, &shape);
    small = epx_routes_small(&gpu, &shape.route, of->ranks);
    EXPECT(few == of->few && small == of->small,
           "%d ranks, %d experts, top-%d, %d tokens: few %d, small %d", of->ranks, of->experts,
           of->top_k, of->max_tokens, few, small);
    if (small) {
        const struct epx_device_plan plan = {.shape = shape.route};
        const struct epx_small_parts parts = epx_small_parts_of(&plan, of->ranks);

        EXPECT(epx_small_bytes(&parts) <= EPX_SMALL_BYTES, "%d bytes", epx_small_bytes(&parts));
        EXPECT(id_words(&shape.route, of->ranks) <= EPX_BANK_WORDS, "%lld words of ids",
               (long long)id_words(&shape.route, of->ranks));
    }
    gpu.has_banks = 0;
    EXPECT(!is_small(&gpu, &shape), "small without banks");
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
    const struct epx_gpu gpu = gpu_of(132, 0);
    const struct epx_shape shape =
        shape_of(rows->verb, rows->ranks, rows->top_k, rows->max_tokens, rows->row_bytes);
    int pays = is_small(&gpu, &shape);

    EXPECT(pays == rows->pays, "%s, %d ranks, top-%d, %d tokens of %lld bytes: %d",
           epx_verb_name(rows->verb), rows->ranks, rows->top_k, rows->max_tokens,
           (long long)rows->row_bytes, pays);
    SETTLE();
}
END_TEST

static const enum epx_verb verbs[] = {EPX_VERB_ROUTE_DISPATCH, EPX_VERB_DISPATCH, EPX_VERB_COMBINE,
                                      EPX_VERB_DISPATCH_BACKWARD, EPX_VERB_COMBINE_BACKWARD};
enum { NUM_VERBS = (int)(sizeof(verbs) / sizeof(verbs[0])) };

static int are_alike(const struct epx_slices *a, const struct epx_slices *b)
{
    return a->num == b->num && a->bytes == b->bytes;
}

/* Whether what must be the same on all ranks is: where rows lie and in what pieces they travel, but
 * not how many blocks of a rank do it. */
static int agree(const struct epx_way *a, const struct epx_way *b)
{
    return a->wire == b->wire && a->routes_small == b->routes_small &&
           !a->banks.senders == !b->banks.senders && a->banks.pitch == b->banks.pitch &&
           a->banks.words_at == b->banks.words_at && a->banks.packets_at == b->banks.packets_at &&
           a->banks.row_packets == b->banks.row_packets && a->banks.stripes == b->banks.stripes &&
           are_alike(&a->banks.slices, &b->banks.slices) && a->movers.chunks == b->movers.chunks &&
           a->movers.run == b->movers.run && a->movers.rows_log2 == b->movers.rows_log2 &&
           a->movers.warps == b->movers.warps && are_alike(&a->movers.slices, &b->movers.slices) &&
           a->in_rounds == b->in_rounds && a->rounds.num == b->rounds.num &&
           a->rounds.tokens == b->rounds.tokens && a->rounds.pitch == b->rounds.pitch;
}

/* Two ranks of which one is bounded, or has a smaller GPU, have agreed on blocks and senders. */
static void expect_agreement(const struct epx_gpu *large, const struct epx_gpu *small,
                             enum epx_verb verb, const struct epx_shape *shape)
{
    const struct epx_way a = epx_way_of_shape(large, shape), b = epx_way_of_shape(small, shape);

    EXPECT(agree(&a, &b), "%s, %d ranks, top-%d, %d tokens of %lld bytes: %s and %s",
           epx_verb_name(verb), shape->ranks, shape->route.top_k, shape->route.max_tokens,
           (long long)shape->row_bytes, epx_wire_name(a.wire), epx_wire_name(b.wire));
}

START_TEST(ranks_decide_alike)
{
    static const int tokens[] = {1, 16, 128, 1024, 4096, 8192}, ranks[] = {2, 3, 8, 64};
    static const int64_t bytes[] = {2, 16, 130, 512, 2880, 7168, 14336, 65536};
    struct epx_gpu large = gpu_of(132, 0), small = gpu_of(_i ? 132 : 20, _i ? 16 : 0);

    large.blocks = small.blocks;
    large.senders = small.senders;
    for (int v = 0; v < NUM_VERBS; v++)
        for (int r = 0; r < 4; r++)
            for (int t = 0; t < 6; t++)
                for (int b = 0; b < 8; b++) {
                    struct epx_shape shape = shape_of(verbs[v], ranks[r], 8, tokens[t], bytes[b]);

                    expect_agreement(&large, &small, verbs[v], &shape);
                    shape.given_weights = 1;
                    expect_agreement(&large, &small, verbs[v], &shape);
                    shape.biased = 1;
                    expect_agreement(&large, &small, verbs[v], &shape);
                }
    SETTLE();
}
END_TEST

/* Bytes of a stage that a round fills, with what follows a row. */
static int64_t filled(const struct epx_rounds *rounds)
{
    return rounds->width * rounds->tokens * rounds->pitch;
}

/* Whether rounds stay in the stage, take all tokens and leave so many bytes behind each row. */
static int rounds_hold(const struct epx_rounds *rounds, const struct epx_shape *shape, int behind)
{
    const int64_t rounds_of_tokens = rounds->num / rounds->cut.num;

    return filled(rounds) <= shape->stage_bytes &&
           rounds_of_tokens * rounds->tokens >= shape->route.max_tokens &&
           rounds->pitch == ((rounds->cut.bytes ? rounds->cut.bytes : 1) + 15) / 16 * 16 + behind;
}

static const struct words {
    enum epx_verb verb;
    int tells_kept;
    int behind; /* bytes, with top-8 */
} words[] = {{EPX_VERB_DISPATCH, 0, 32},
             {EPX_VERB_DISPATCH, 1, 32},
             {EPX_VERB_COMBINE, 0, 0},
             {EPX_VERB_COMBINE, 1, 16},
             {EPX_VERB_DISPATCH_BACKWARD, 0, 32},
             {EPX_VERB_DISPATCH_BACKWARD, 1, 48},
             {EPX_VERB_COMBINE_BACKWARD, 0, 0}};
enum { NUM_WORDS = (int)(sizeof(words) / sizeof(words[0])) };

/* Eight weights take 32 bytes behind a row, and the word of a sum's last choice 16 more. A row of
 * no bytes is one of weights alone. The smaller stage holds the longest row only without words. */
START_TEST(words_follow_rows_in_messages)
{
    static const int64_t bytes[] = {0, 2, 16, 14336, 2 * EPX_SEGMENT_QUANTUM};
    static const int64_t stages[] = {(int64_t)64 << 20, 7 * 2 * EPX_SEGMENT_QUANTUM};
    enum { NUM_BYTES = 5, NUM_STAGES = 2, WIDTH = 7 };
    const struct words *of = &words[_i];
    struct epx_gpu gpu = gpu_of(132, 0);

    gpu.has_banks = 0;
    for (int i = 0; i < NUM_BYTES * NUM_STAGES; i++) {
        struct epx_shape shape = shape_of(of->verb, 64, 8, 8192, bytes[i % NUM_BYTES]);
        struct epx_way way;

        shape.stage_bytes = stages[i / NUM_BYTES];
        shape.message_rows = WIDTH;
        shape.tells_kept = of->tells_kept;
        way = epx_way_of_shape(&gpu, &shape);
        EXPECT(way.wire == EPX_WIRE_MESSAGES && !way.banks.senders && way.rounds.width == WIDTH &&
                   rounds_hold(&way.rounds, &shape, of->behind),
               "%s of %lld bytes: %s, %lld rounds of %d tokens and %lld bytes",
               epx_verb_name(of->verb), (long long)shape.row_bytes, epx_wire_name(way.wire),
               (long long)way.rounds.num, way.rounds.tokens, (long long)way.rounds.pitch);
    }
    SETTLE();
}
END_TEST

START_TEST(only_biases_need_rounds)
{
    const struct epx_gpu gpu = gpu_of(132, 0);
    struct epx_shape shape = shape_of(EPX_VERB_COMBINE, 2, 8, _i ? 8192 : 16, 14336);
    const struct epx_way without = epx_way_of_shape(&gpu, &shape);
    struct epx_way way;

    shape.route.by_choice = 1;
    way = epx_way_of_shape(&gpu, &shape);
    EXPECT(memcmp(&way, &without, sizeof(way)) == 0, "sums by last choice go another way");
    shape.biased = 1;
    way = epx_way_of_shape(&gpu, &shape);
    EXPECT(way.in_rounds && !way.banks.senders, "biases: %d, %d", way.in_rounds, way.banks.senders);
    SETTLE();
}
END_TEST

/* Blocks that send wait then, too: all of a rank's blocks must run at once beside those of ranks
 * that share its GPU, and of another communicator. */
START_TEST(given_weights_travel_by_banks_where_they_have_room)
{
    static const int tokens[] = {1, 16, 128, 256, 257, 1024}, most = EPX_SMALL_PAIRS / 2 / 16;
    const int sharers = 1 << _i;

    for (int t = 0; t < 6; t++) {
        struct epx_gpu gpu = gpu_of(132, 0);
        struct epx_shape shape = shape_of(EPX_VERB_COMBINE, 2, 16, tokens[t], 14336);
        struct epx_way way;

        shape.given_weights = 1;
        epx_gpu_share(&gpu, sharers, 16);
        way = epx_way_of_shape(&gpu, &shape);
        EXPECT(!way.in_rounds == (tokens[t] <= most), "%d tokens: in rounds: %d", tokens[t],
               way.in_rounds);
        EXPECT(way.in_rounds || 2 * (way.banks.senders + way.banks.receivers) <= gpu.movers,
               "%d tokens: %d and %d blocks of %d", tokens[t], way.banks.senders,
               way.banks.receivers, gpu.movers);
    }
    SETTLE();
}
END_TEST

/* A rank that is alone waits for no weights. */
START_TEST(given_weights_change_nothing_on_one_rank)
{
    const struct epx_gpu gpu = gpu_of(132, 0);
    struct epx_shape shape = shape_of(EPX_VERB_COMBINE, 1, 8, 1 << _i, 14336);
    const struct epx_way without = epx_way_of_shape(&gpu, &shape);
    struct epx_way way;

    shape.given_weights = 1;
    way = epx_way_of_shape(&gpu, &shape);
    EXPECT(memcmp(&way, &without, sizeof(way)) == 0, "%d and %d blocks, not %d and %d",
           way.banks.senders, way.banks.receivers, without.banks.senders, without.banks.receivers);
    SETTLE();
}
END_TEST

/* With --enable-jitter limits on pairs are lower, so that small tests go both ways. */
static Suite *make_suite(void)
{
    Suite *suite = suite_create("tuning");
    TCase *tcase = tcase_create("tuning");

    tcase_add_loop_test(tcase, limits_are_where_they_are_said_to_be, 0,
                        EPX_JITTERS ? 0 : NUM_SHAPES);
    tcase_add_loop_test(tcase, it_pays_up_to_what_was_measured, 0, EPX_JITTERS ? 0 : NUM_ROWS);
    tcase_add_loop_test(tcase, ranks_decide_alike, 0, 2);
    tcase_add_loop_test(tcase, words_follow_rows_in_messages, 0, NUM_WORDS);
    tcase_add_loop_test(tcase, only_biases_need_rounds, 0, 2);
    tcase_add_loop_test(tcase, given_weights_travel_by_banks_where_they_have_room, 0,
                        EPX_JITTERS ? 0 : 5);
    tcase_add_loop_test(tcase, given_weights_change_nothing_on_one_rank, 0, EPX_JITTERS ? 0 : 16);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

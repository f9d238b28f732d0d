/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tuning.c - decides the way of an operation. What was measured stands in one table, below; each
 * constant names the page of docs/notebook/ that has the figures.
 */
#include "coll/tuning.h"

#include "base/jitter.h"
#include "kernels/args/block_shape.h"
#include "kernels/control_words.h"
#include "kernels/element.h"
#include "kernels/small_parts.h"

#define MIB ((int64_t)1 << 20)
#define ANY INT64_MAX
/* With --enable-jitter small tests take the ways of large operations too. */
#define UNLESS_JITTER(number, log2) (EPX_JITTERS ? 1 << (log2) : (number))

static const struct {
    /* where_small_ends: pairs of all ranks up to which one launch takes less
     * time than two; a combine backward, and rows of no whole words, on one rank and on several. In
     * a small routing each block counts all pairs. */
    int64_t pairs, scaled_pairs, odd_pairs_alone, odd_pairs, routed_pairs;
    /* where_small_ends: a rank alone streams rows by two launches, which pays for many or long
     * ones. */
    int64_t tokens_alone, odd_token_bytes_alone, odd_pair_bytes_alone, scaled_pair_bytes;
    /* packets: bytes of all rows in a bank up to which packets take less time than flags. */
    int64_t packed_sums, packed_rows;
    /* small_operations: a multiprocessor issues for so many warps at once. */
    int32_t busy_warps;
    /* small_operations: of the blocks that move rows at most these shares send, where rows are
     * added, and where receivers store more rows than come. */
    int32_t adding_share, storing_share;
    /* not_small: bytes of a row that count as long where rows are added. */
    int64_t long_row_bytes;
    /* not_small: tasks that a sender claims at once where there are enough for all. */
    int32_t run;
    /* few_multiprocessors: blocks that send beside those that wait where ranks share a GPU. */
    int32_t least_senders;
} tuned = {
    .pairs = UNLESS_JITTER(1 << 16, 7),
    .scaled_pairs = UNLESS_JITTER(1 << 15, 7),
    .odd_pairs_alone = UNLESS_JITTER(1 << 14, 7),
    .odd_pairs = UNLESS_JITTER(1 << 13, 7),
    .routed_pairs = 1 << 12,
    .tokens_alone = 8192,
    .odd_token_bytes_alone = 8 * MIB,
    .odd_pair_bytes_alone = 32 * MIB,
    .scaled_pair_bytes = 64 * MIB,
    .packed_sums = UNLESS_JITTER(2 * MIB, 13),
    .packed_rows = UNLESS_JITTER(4 * MIB, 13),
    .busy_warps = 4,
    .adding_share = 2,
    .storing_share = 4,
    .long_row_bytes = 8192,
    .run = 2,
    .least_senders = 8,
};

/* Shares of the blocks of a large operation that send, sender_share below: half of them where it
 * has the whole GPU; more where a bound makes senders end later (few_multiprocessors). */
struct share {
    int32_t part, of;
};
static const struct share STAYING_ROWS = {3, 4}, LONG_BOUNDED_ROWS = {5, 8},
                          FEW_BOUNDED_BLOCKS = {9, 16}, BOUNDED_SUMS = {3, 5}, GRADS = {5, 16},
                          BOUNDED_GRADS = {1, 2};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int is_odd(int64_t row_bytes)
{
    return row_bytes % 16 != 0;
}

static int adds(const struct epx_shape *shape)
{
    return shape->flow == EPX_FLOW_SUMS;
}

static int scales(const struct epx_shape *shape)
{
    return shape->flow == EPX_FLOW_SCALED;
}

void epx_shape_set_verb(struct epx_shape *shape, enum epx_verb verb)
{
    if (epx_verb_dispatches(verb))
        shape->flow = EPX_FLOW_ROWS;
    else if (epx_verb_adds(verb))
        shape->flow = EPX_FLOW_SUMS;
    else if (verb == EPX_VERB_COMBINE_BACKWARD)
        shape->flow = EPX_FLOW_SCALED;
    else
        shape->flow = EPX_FLOW_NONE;
    shape->routes = epx_verb_routes(verb);
    shape->listed = epx_verb_has_fields(verb);
    shape->has_words = shape->flow == EPX_FLOW_ROWS || verb == EPX_VERB_DISPATCH_BACKWARD;
}

void epx_gpu_share(struct epx_gpu *gpu, int32_t sharers, int64_t waiting_sms)
{
    int32_t room, share;

    gpu->blocks = (int32_t)least(waiting_sms, gpu->sms);
    room = gpu->sms > gpu->blocks ? gpu->sms - gpu->blocks : 1;
    share = gpu->sms / sharers - gpu->blocks;
    gpu->most_senders = (int32_t)least(most(share, tuned.least_senders), room);
    gpu->movers = gpu->sms / sharers;
    if (gpu->max_sms)
        gpu->movers = (int32_t)least(gpu->movers, gpu->max_sms);
    gpu->movers = (int32_t)most(gpu->movers, 2);
    gpu->senders = (int32_t)least(gpu->movers / 2, EPX_MOST_SENDERS);
}

/* A stage has room for one segment of each row that comes at once, with what may follow it. It is
 * rounded: with messages a second one begins where the first ends, and rows lie in both alike. */
void epx_gpu_set_sizes(struct epx_gpu *gpu, int64_t width, int64_t window_bytes, int messages)
{
    enum { STAGE_QUANTUM = 16, PART_QUANTUM = 256, STAGES_OF_ROWS = 4, STAGES_OF_PACKETS = 2 };
    const int64_t flags = (EPX_BANK_FLAGS + EPX_BANK_WORDS) * (int64_t)sizeof(uint64_t);

    gpu->stage_bytes =
        most(window_bytes / STAGE_QUANTUM * STAGE_QUANTUM, width * 2 * EPX_SEGMENT_QUANTUM);
    gpu->packets_at = epx_round_up(flags + STAGES_OF_ROWS * gpu->stage_bytes, PART_QUANTUM);
    gpu->has_banks = !messages;
    gpu->bank_bytes =
        messages
            ? 0
            : epx_round_up(gpu->packets_at + STAGES_OF_PACKETS * gpu->stage_bytes, PART_QUANTUM);
}

/* What is small. */

static int64_t pairs_of(const struct epx_plan_shape *route, int32_t ranks)
{
    return (int64_t)ranks * route->max_tokens * route->top_k;
}

static int has_few_pairs(const struct epx_gpu *gpu, const struct epx_plan_shape *route,
                         int32_t ranks)
{
    return gpu->has_banks && ranks <= EPX_SMALL_RANKS && route->top_k <= EPX_SMALL_TOP_K &&
           pairs_of(route, ranks) <= tuned.pairs;
}

int epx_routes_small(const struct epx_gpu *gpu, const struct epx_plan_shape *route, int32_t ranks)
{
    const struct epx_device_plan plan = {.shape = *route};
    struct epx_small_parts parts;

    if (!has_few_pairs(gpu, route, ranks) || pairs_of(route, ranks) > tuned.routed_pairs ||
        route->num_experts > EPX_SMALL_EXPERTS ||
        (int64_t)ranks * route->max_tokens > EPX_SMALL_TOKENS ||
        (int64_t)ranks * epx_num_counts(&plan, ranks) > EPX_SMALL_COUNTS)
        return 0;
    parts = epx_small_parts_of(&plan, ranks);
    return epx_small_bytes(&parts) <= EPX_SMALL_BYTES;
}

/* The most that an operation has for which one launch takes less time than more. */
struct limits {
    int64_t pairs, tokens;           /* of all ranks, of a rank */
    int64_t token_bytes, pair_bytes; /* of rows that a rank has one of for each token, each pair */
};

static struct limits limits_among_ranks(const struct epx_shape *shape)
{
    if (is_odd(shape->row_bytes))
        return (struct limits){tuned.odd_pairs, ANY, ANY,
                               scales(shape) ? tuned.scaled_pair_bytes : ANY};
    if (scales(shape))
        return (struct limits){tuned.scaled_pairs, ANY, ANY, tuned.scaled_pair_bytes};
    return (struct limits){tuned.pairs, ANY, ANY, ANY};
}

/* On one rank nothing is on a wire. A combine backward of one slot a token, of whole words, is the
 * faster in one launch however many bytes there are. */
static struct limits limits_alone(const struct epx_shape *shape)
{
    struct limits limits = limits_among_ranks(shape);
    const int odd = is_odd(shape->row_bytes);

    if (!scales(shape))
        return odd ? (struct limits){tuned.odd_pairs_alone, ANY, tuned.odd_token_bytes_alone,
                                     tuned.odd_pair_bytes_alone}
                   : (struct limits){tuned.pairs, tuned.tokens_alone, ANY, ANY};
    if (shape->route.top_k == 1 && !odd)
        limits.pair_bytes = ANY;
    return limits;
}

/* Whether one launch takes less time than more. Ranks find it alike: what counts is what comes to
 * each on average. */
static int small_pays(const struct epx_shape *shape)
{
    const int64_t tokens = shape->route.max_tokens, pairs = pairs_of(&shape->route, shape->ranks);
    const struct limits limits =
        shape->ranks == 1 ? limits_alone(shape) : limits_among_ranks(shape);

    if (shape->routes)
        return 1;
    return pairs <= limits.pairs && tokens <= limits.tokens &&
           tokens * shape->row_bytes <= limits.token_bytes &&
           pairs / shape->ranks * shape->row_bytes <= limits.pair_bytes;
}

/* Whether blocks that send wait for weights of other ranks. */
static int senders_wait(const struct epx_shape *shape)
{
    return shape->given_weights && shape->ranks > 1;
}

/* Whether there is room for rows in a bank, for a flag a slice, and for weights. A rank that is
 * alone puts none there; beyond a bank's room its small operations are the faster where a token has
 * one slot, rows have whole words, and none are added. */
static int have_room(const struct epx_gpu *gpu, const struct epx_shape *shape,
                     const struct epx_banks *banks, int64_t rows)
{
    const int64_t flags = (EPX_BANK_FLAGS + EPX_BANK_WORDS) * (int64_t)sizeof(uint64_t);

    if (shape->ranks == 1 && shape->route.top_k == 1 && !is_odd(shape->row_bytes) && !adds(shape))
        return 1;
    if (senders_wait(shape) && pairs_of(&shape->route, shape->ranks) > EPX_SMALL_PAIRS)
        return 0;
    return rows * banks->slices.num <= EPX_BANK_FLAGS &&
           rows <= (gpu->packets_at - flags) / banks->pitch;
}

/* The way of a small operation. */

/* The warps of all blocks that send. */
static int64_t sending_warps(const struct epx_gpu *gpu)
{
    return (int64_t)gpu->senders * EPX_WAITING_THREADS / EPX_WARP;
}

/* The work of a warp that adds grows with the rows of a sum, so its slices may be shorter. Slices
 * depend on nothing in which ranks may differ, and fit in the flags of a bank. */
static struct epx_slices small_slices(const struct epx_gpu *gpu, const struct epx_shape *shape,
                                      int64_t row_bytes, int32_t width)
{
    const int64_t shortest = adds(shape) ? EPX_SLICE_QUANTUM : EPX_LEAST_SLICE_BYTES;

    return epx_slices_from(shortest, row_bytes, shape->route.max_tokens,
                           least(sending_warps(gpu), EPX_BANK_FLAGS / width));
}

/* Blocks for so many pieces of work, a warp each: at least one, at most so many. */
static int32_t blocks_for(int64_t pieces, int64_t at_most)
{
    return (int32_t)most(least(divide_up(pieces, tuned.busy_warps), at_most), 1);
}

/* Blocks of a small operation that take so many pieces of rows for each rank that sends. Those of
 * a combine backward that scale gradients have some of the slots each, and share their rows. */
static int32_t blocks_that_take(const struct epx_shape *shape, int64_t pieces, int64_t at_most)
{
    if (adds(shape))
        return blocks_for(pieces, at_most);
    if (shape->flow == EPX_FLOW_ROWS)
        return blocks_for(pieces * shape->ranks, at_most);
    if (scales(shape)) {
        int64_t slots = (int64_t)shape->ranks * shape->route.max_tokens *
                        epx_most_slots_of_record(&shape->route);
        int64_t elements = shape->call_bytes / epx_datatype_bytes(shape->datatype);

        return blocks_for(slots * epx_dot_blocks(elements), least(at_most, slots));
    }
    return 1;
}

/*
 * Shares out the blocks of a small operation. Where rows are added both kinds of blocks have about
 * as much to do. In a dispatch and in a combine backward those who take rows have more, as they
 * store them for each expert. Those who take are as many as wait in a routing, unless the hint
 * epx_max_sms, which bounds both kinds together, leaves room for fewer. Where senders wait, too,
 * for weights, all blocks are at most half of what the GPU has for this rank: operations of two
 * communicators may run at once, in one order on one GPU and in the other on another.
 */
static void share_out_small(const struct epx_gpu *gpu, const struct epx_shape *shape, int32_t width,
                            struct epx_banks *banks)
{
    /* A rank that is alone sends no rows, but a routing's ids. */
    const int alone = shape->ranks == 1 && !shape->routes;
    const int32_t movers = senders_wait(shape) ? (int32_t)most(gpu->movers / 2, 2) : gpu->movers;
    int64_t pieces = (int64_t)shape->route.max_tokens * banks->slices.num;
    int64_t at_most = gpu->most_senders, at_least;

    if (adds(shape))
        at_most = least(at_most, movers / tuned.adding_share);
    if (shape->flow == EPX_FLOW_ROWS || scales(shape))
        at_most = least(at_most, movers / tuned.storing_share);
    banks->senders = blocks_for(alone ? 0 : pieces * width, at_most);
    at_most = movers - banks->senders;
    at_least =
        (gpu->max_sms || senders_wait(shape)) && at_most < gpu->blocks ? at_most : gpu->blocks;
    banks->receivers = (int32_t)most(blocks_that_take(shape, pieces, at_most), at_least);
}

/* Whether the rows of a small operation, so many on each rank, may travel in packets. In an
 * operation that routes ids come later than rows. */
static int packets_pay(const struct epx_shape *shape, int64_t rows)
{
    const int64_t bytes = rows * shape->row_bytes;

    if (shape->ranks == 1 || shape->fields > 1 || is_odd(shape->row_bytes) || bytes == 0)
        return 0;
    if (adds(shape))
        return bytes <= tuned.packed_sums;
    return shape->flow == EPX_FLOW_ROWS && !shape->routes && !shape->listed &&
           bytes <= tuned.packed_rows;
}

/* Lets rows travel in packets if they may and there is room. Slices that are longer than a stripe
 * end with one. */
static void set_packets(const struct epx_gpu *gpu, const struct epx_shape *shape, int64_t rows,
                        struct epx_banks *banks)
{
    const int64_t room = (gpu->bank_bytes - gpu->packets_at) / 16;
    struct epx_slices slices = banks->slices;
    int32_t stripes, packets;

    if (!packets_pay(shape, rows))
        return;
    if (!adds(shape))
        slices = epx_slices_from(EPX_STRIPE_BYTES, shape->row_bytes, shape->route.max_tokens,
                                 sending_warps(gpu));
    if (slices.bytes > EPX_STRIPE_BYTES)
        slices.bytes = epx_round_up(slices.bytes, EPX_STRIPE_BYTES);
    slices.num = (int32_t)divide_up(shape->row_bytes, slices.bytes);
    stripes = (int32_t)divide_up(slices.bytes, EPX_STRIPE_BYTES);
    packets = slices.num * stripes * EPX_STRIPE_PACKETS;
    if (banks->pitch > banks->words_at)
        packets += EPX_WARP;
    if (rows * packets > room)
        return;
    banks->slices = slices;
    banks->packets_at = gpu->packets_at;
    banks->row_packets = packets;
    banks->stripes = stripes;
}

/* Words that go with a row: the weights of its pairs, or their gradients. */
static int32_t words_of(const struct epx_shape *shape)
{
    return shape->has_words ? shape->route.top_k : 0;
}

static struct epx_banks banks_of(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    const int32_t width = adds(shape) ? shape->most_rows : shape->ranks;
    const int64_t rows = (int64_t)shape->route.max_tokens * width;
    const int64_t words = words_of(shape) * (int64_t)sizeof(float);
    struct epx_banks banks = {.words_at = shape->bank_row_bytes};

    banks.slices = small_slices(
        gpu, shape, shape->fields > 1 ? shape->bank_row_bytes : shape->row_bytes, width);
    banks.pitch = most(banks.words_at + epx_round_up(words, 16), 16);
    if (has_few_pairs(gpu, &shape->route, shape->ranks) && small_pays(shape) &&
        have_room(gpu, shape, &banks, rows)) {
        set_packets(gpu, shape, rows, &banks);
        share_out_small(gpu, shape, width, &banks);
    }
    return banks;
}

/* The way of a large operation. */

/* Bytes behind a row in a stage: in messages its words travel with it. */
static int64_t bytes_behind(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    int64_t words = words_of(shape);

    if (gpu->has_banks)
        return 0;
    if (adds(shape) && shape->tells_kept)
        words++;
    return epx_round_up(words * (int64_t)sizeof(float), 16);
}

/* Rows of a token that come to a stage at once. */
static int32_t stage_width(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    if (!gpu->has_banks)
        return shape->message_rows;
    return adds(shape) ? shape->most_rows : shape->ranks;
}

/* How rows go through a stage. */
static struct epx_rounds rounds_of(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    const int64_t behind = bytes_behind(gpu, shape);
    const int32_t tokens = shape->route.max_tokens;
    struct epx_rounds rounds = {.width = stage_width(gpu, shape)};
    const int64_t share = shape->stage_bytes / rounds.width / 16 * 16;

    rounds.cut = epx_segments_cut(shape->row_bytes, share - behind);
    rounds.pitch = epx_round_up(rounds.cut.bytes ? rounds.cut.bytes : 1, 16) + behind;
    rounds.tokens = (int32_t)most(least(share / rounds.pitch, tokens), 1);
    rounds.num = most(divide_up(tokens, rounds.tokens) * rounds.cut.num, 1);
    return rounds;
}

/* Whether an operation may not have the whole GPU. */
static int is_bounded(const struct epx_gpu *gpu)
{
    return gpu->movers < gpu->sms;
}

/* A slice for every one of so many warps, if there are fewer rows; not longer than `longest`. */
static struct epx_slices slices_for(const struct epx_shape *shape, int64_t warps, int64_t longest)
{
    struct epx_slices slices = epx_slices_of(shape->row_bytes, shape->route.max_tokens, warps);

    if (slices.bytes > longest) {
        slices.num = (int32_t)divide_up(shape->row_bytes, longest);
        slices.bytes = epx_round_up(divide_up(shape->row_bytes, slices.num), EPX_SLICE_QUANTUM);
    }
    return slices;
}

/* The blocks that send if they are a share of all: no more than may, no fewer than half. */
static int32_t sender_share(const struct epx_gpu *gpu, struct share share)
{
    const int32_t senders = share.part * gpu->movers / share.of;

    return (int32_t)most(least(senders, EPX_MOST_SENDERS), gpu->senders);
}

/* So many of an operation's blocks send, and take when they have sent; its other blocks take from
 * the beginning. None send where rows come by messages. */
static struct epx_movers share_out(const struct epx_gpu *gpu, int32_t senders)
{
    struct epx_movers movers = {.senders = gpu->has_banks ? senders : 0};

    movers.receivers = gpu->movers - movers.senders;
    return movers;
}

/* How many of a dispatch's blocks send. A single rank's take its rows to all their slots. Rows that
 * stay where they come leave the blocks that take little to do, but there must be one. */
static int32_t row_senders(const struct epx_gpu *gpu, const struct epx_shape *shape,
                           const struct epx_slices *slices)
{
    if (shape->ranks == 1)
        return gpu->movers;
    if (shape->stays)
        return sender_share(gpu, STAYING_ROWS);
    if (is_bounded(gpu) && slices->bytes > EPX_MIDDLE_SLICE)
        return sender_share(gpu, LONG_BOUNDED_ROWS);
    if (is_bounded(gpu) && gpu->senders <= EPX_FEW_SENDERS)
        return sender_share(gpu, FEW_BOUNDED_BLOCKS);
    return gpu->senders;
}

/* How many rows of one field a warp moves at once, as a power of 2: as many as it has room for, if
 * there is a task for each of so many warps. */
static int32_t rows_log2_of(const struct epx_shape *shape, const struct epx_slices *slices,
                            int64_t warps)
{
    int64_t at_most = EPX_BUNDLE_BYTES / epx_bundle_pitch(shape->row_bytes);
    int32_t log2 = 0;

    if (shape->fields > 1 || slices->num > 1)
        return 0;
    at_most = least(least(at_most, EPX_BUNDLE_PLACES / shape->route.top_k), EPX_WARP);
    while (2 << log2 <= at_most && (int64_t)2 << log2 <= shape->route.max_tokens / warps)
        log2++;
    return log2;
}

/* The warps of a block that moves rows: the shorter a task of theirs, the more of them. Where
 * blocks are few a block has a multiprocessor's whole memory, and warps for it. */
static int32_t row_warps(const struct epx_gpu *gpu, const struct epx_shape *shape,
                         const struct epx_movers *movers)
{
    if (movers->rows_log2)
        return EPX_BUNDLE_WARPS;
    if (movers->slices.bytes <= EPX_MIDDLE_SLICE)
        return EPX_MIDDLE_WARPS;
    if (gpu->senders > EPX_FEW_SENDERS)
        return EPX_MOVING_WARPS;
    return shape->fields > 1 ? EPX_CROWDED_LIST_WARPS : EPX_CROWDED_WARPS;
}

/* How many tasks a sender's warp claims at once: `tuned.run` where there are enough for all warps,
 * and as many as it takes for each run to have a word. */
static int32_t run_of(const struct epx_shape *shape, const struct epx_movers *movers, int64_t warps)
{
    const int64_t rows = (int64_t)1 << movers->rows_log2;
    const int64_t tasks = divide_up(shape->route.max_tokens, rows) * movers->slices.num;
    const int64_t at_least = divide_up(tasks, EPX_SENDER_RUNS);

    if (tasks >= tuned.run * warps && at_least < tuned.run)
        return tuned.run;
    return (int32_t)most(at_least, 1);
}

/* Slices, rows of a task, warps and runs are the same on all ranks; how many blocks send may
 * differ. */
static struct epx_movers row_movers(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    const struct epx_slices slices =
        slices_for(shape, (int64_t)gpu->senders * EPX_MOVING_WARPS, EPX_BOX_SLICE);
    const int32_t senders = row_senders(gpu, shape, &slices);
    const int64_t blocks = shape->ranks == 1 ? senders : gpu->senders;
    struct epx_movers movers = share_out(gpu, senders);

    movers.slices = slices;
    movers.rows_log2 = rows_log2_of(shape, &movers.slices, blocks * EPX_BUNDLE_WARPS);
    movers.warps = row_warps(gpu, shape, &movers);
    movers.run = run_of(shape, &movers, blocks * movers.warps);
    return movers;
}

/* Receivers have more to do than senders: for each slot they read a row and write another. Slices
 * are the same on ranks of which only some are bounded. */
static struct epx_movers grad_movers(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    const int32_t few = (int32_t)divide_up(GRADS.part * gpu->senders, GRADS.of);
    const int32_t bounded = (int32_t)divide_up(BOUNDED_GRADS.part * gpu->senders, BOUNDED_GRADS.of);
    const int32_t senders = is_bounded(gpu) ? bounded : few;
    struct epx_movers movers = share_out(gpu, shape->ranks == 1 ? 0 : senders);
    const int64_t warps = movers.senders ? (int64_t)few * EPX_ADDING_WARPS : 0;

    movers.slices = slices_for(shape, warps, EPX_GRAD_SLICE);
    movers.rows_log2 = warps ? rows_log2_of(shape, &movers.slices, warps) : 0;
    movers.run = run_of(shape, &movers, warps);
    return movers;
}

/* As many chunks of the token numbers as there are tokens, if rows are long, else half as many but
 * enough for so many warps; never more than tokens, nor than have a word for each slice. */
static int32_t chunks_of(const struct epx_shape *shape, const struct epx_slices *slices,
                         int32_t warps)
{
    const int32_t tokens = shape->route.max_tokens;
    int64_t wanted = shape->row_bytes >= tuned.long_row_bytes ? tokens : tokens / 2;

    wanted = least(most(wanted, warps / slices->num), tokens);
    return (int32_t)most(least(wanted, EPX_SENDER_RUNS / slices->num), 1);
}

/* Few tokens are cut into slices for nearly all warps of blocks that send and as many that take. */
static struct epx_movers sum_movers(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    const int32_t warps = 2 * gpu->senders * EPX_ADDING_WARPS;
    const int32_t senders = is_bounded(gpu) ? sender_share(gpu, BOUNDED_SUMS) : gpu->senders;
    struct epx_movers movers = share_out(gpu, shape->ranks == 1 ? 0 : senders);

    movers.slices = slices_for(shape, warps, INT64_MAX);
    movers.chunks = chunks_of(shape, &movers.slices, warps);
    return movers;
}

static struct epx_movers movers_of(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    if (adds(shape))
        return sum_movers(gpu, shape);
    return scales(shape) ? grad_movers(gpu, shape) : row_movers(gpu, shape);
}

static enum epx_wire wire_of(const struct epx_gpu *gpu, const struct epx_way *way,
                             const struct epx_shape *shape)
{
    if (!gpu->has_banks)
        return EPX_WIRE_MESSAGES;
    if (way->in_rounds && adds(shape))
        return EPX_WIRE_STAGES;
    if (shape->ranks == 1)
        return EPX_WIRE_NONE;
    if (way->banks.packets_at)
        return EPX_WIRE_PACKETS;
    return way->banks.senders ? EPX_WIRE_FLAGS : EPX_WIRE_PROGRESS;
}

struct epx_way epx_way_of_shape(const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    struct epx_way way = {0};

    if (shape->routes)
        way.routes_small = epx_routes_small(gpu, &shape->route, shape->ranks);
    if (shape->routes && (!way.routes_small || !shape->fields))
        return way;
    if (!shape->biased)
        way.banks = banks_of(gpu, shape);
    way.rounds = rounds_of(gpu, shape);
    way.in_rounds =
        !way.banks.senders && (way.rounds.num > 1 || shape->biased || senders_wait(shape));
    if (way.banks.senders)
        way.rounds.cut = epx_segments_cut(shape->row_bytes, shape->row_bytes);
    else
        way.movers = movers_of(gpu, shape);
    way.wire = wire_of(gpu, &way, shape);
    return way;
}

const char *epx_wire_name(enum epx_wire wire)
{
    static const char *const names[] = {
        [EPX_WIRE_NONE] = "none",     [EPX_WIRE_PACKETS] = "packets",
        [EPX_WIRE_FLAGS] = "flags",   [EPX_WIRE_PROGRESS] = "progress",
        [EPX_WIRE_STAGES] = "stages", [EPX_WIRE_MESSAGES] = "messages"};

    return names[wire];
}

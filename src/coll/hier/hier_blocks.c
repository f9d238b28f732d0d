/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hier_blocks.c - which rows a round moves, and where they lie in the stages and in the own area.
 *
 * A block is the rows of a range of token indices, the same range on every home. All homes may have
 * rows of one token index on the same rank, but few have. So each rank counts the rows that it must
 * take of each token index, and tells in its ready words how many tokens a block may have wherever
 * it begins. All ranks take the least of these numbers. Where rows are cut, a block has one token,
 * as on all grounds: the sums over a row are kept from segment to segment for one row of each home
 * only.
 */
#include <string.h>

#include "base/jitter.h"
#include "coll/hier/hier.h"
#include "coll/verbs.h"
#include "core/route.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Most rows of one token index on all homes that can meet in a stage or area. */
static int rows_per_token(const struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;

    return epx_verb_adds(request->call.verb) ? plan->num_ranks : plan->by_node->rows_per_token;
}

/* The rows that fit into a stage, with pair weights, whether they travel or not. */
static int64_t rows_that_fit(const struct epx_staged *staged, const struct epx_request *request)
{
    int64_t share = staged->stage_bytes / rows_per_token(request);
    struct epx_segments cut = epx_segments_cut(epx_wire_row_bytes(request), share / 8 * 8);
    int64_t weight_bytes = epx_staged_weight_bytes(request->route->plan);

    return staged->stage_bytes / (epx_round_up(cut.bytes, 8) + weight_bytes);
}

/* Rows for other nodes, which meet in the home stage. */
static void count_home_rows(const struct epx_plan *plan, int32_t *rows)
{
    const struct epx_node_plan *by_node = plan->by_node;

    for (int32_t m = 0; m < by_node->nodes.num_nodes; m++)
        for (int32_t i = 0; m != by_node->nodes.own && i < by_node->rows[m]; i++)
            rows[by_node->row_token[(int64_t)m * plan->shape.max_tokens + i]]++;
}

/* Rows that a relay passes on; in combine they meet in its stage. */
static void count_entries(const struct epx_plan *plan, int32_t *rows)
{
    const struct epx_node_plan *by_node = plan->by_node;

    for (int32_t s = 0; s < plan->num_ranks; s++)
        for (int32_t i = 0; by_node->served[s] >= 0 && i < epx_served_rows(by_node, s); i++)
            rows[*epx_plan_entry(plan, s, i)]++;
}

/* Dispatch: the rows that a relay passes on meet in the area with this rank's own. */
static void count_area(const struct epx_plan *plan, int32_t *rows)
{
    const struct epx_node_plan *by_node = plan->by_node;
    int32_t own = by_node->nodes.own;

    count_entries(plan, rows);
    for (int32_t i = 0; i < by_node->rows[own]; i++)
        rows[by_node->row_token[(int64_t)own * plan->shape.max_tokens + i]]++;
}

/* Combine: the sums for all homes, which meet in the area. */
static void count_parts(const struct epx_plan *plan, int32_t *rows)
{
    for (int32_t s = 0; s < plan->num_ranks; s++)
        for (int32_t u = 0; u < plan->view.rank_counts[s]; u++) {
            const int32_t *record = epx_plan_record(plan, s, u);

            rows[record[EPX_RECORD_TOKEN]] += record[EPX_RECORD_SLOTS] > 0;
        }
}

/* The most tokens that a block may have, wherever it begins, if at most `fit` of its rows fit. */
static int32_t longest_block(const struct epx_plan *plan, int64_t fit,
                             void (*count)(const struct epx_plan *plan, int32_t *rows))
{
    int32_t *rows = plan->by_node->token_rows, num = plan->shape.max_tokens, longest = num, end = 0;
    int64_t sum = 0;

    memset(rows, 0, (size_t)num * sizeof(*rows));
    count(plan, rows);
    for (int32_t first = 0; first < num && longest; first++) {
        while (end < num && sum + rows[end] <= fit)
            sum += rows[end++];
        if (end == num)
            break;
        longest = least(longest, end - first);
        sum -= rows[first];
    }
    return longest;
}

static int32_t tokens_that_fit(const struct epx_staged *staged, const struct epx_request *request)
{
    const struct epx_plan *plan = request->route->plan;
    int64_t fit = rows_that_fit(staged, request);
    int32_t longest = longest_block(plan, fit, count_home_rows);

    if (!epx_verb_adds(request->call.verb))
        return least(longest, longest_block(plan, fit, count_area));
    longest = least(longest, longest_block(plan, fit, count_entries));
    return least(longest, longest_block(plan, fit, count_parts));
}

static void begin(struct epx_hier *hier, const struct epx_request *request, int weighted)
{
    struct epx_staged *staged = hier->staged;
    size_t ranks = (size_t)hier->comm->size;
    int64_t tokens = INT32_MAX;

    epx_staged_begin(staged, request, rows_per_token(request), weighted);
    for (size_t r = 0; r < ranks; r++)
        if (staged->ready[r].block_tokens < tokens)
            tokens = staged->ready[r].block_tokens;
    if (staged->per_round < tokens && staged->cut.num == 1 && request->half != EPX_HALF_WEIGHTS)
        staged->per_round = (int32_t)tokens;
    memset(hier->node_rows, 0, 2 * ranks * sizeof(*hier->node_rows));
    memset(hier->node_at, 0, 4 * ranks * sizeof(*hier->node_at));
}

/* The halves of a combine tell nothing anew: the blocks of its sums were told before the weights,
 * whose blocks are as long as fits in any case. */
int epx_hier_begin(struct epx_request *request, int *moved)
{
    struct epx_hier *hier = epx_hier_of(request);
    struct epx_staged *staged = hier->staged;
    int weighted;

    if (request->phase == EPX_PHASE_POST && request->half <= EPX_HALF_DISPATCH)
        staged->block_tokens = request->route->error ? 0 : tokens_that_fit(staged, request);
    EPX_TRY(epx_staged_handshake(request, &weighted, moved));
    if (!*moved || epx_combine_splits(request, &weighted))
        return EPX_SUCCESS;
    begin(hier, request, weighted);
    epx_moves_begin(request, weighted);
    return EPX_SUCCESS;
}

static void find_home_rows(struct epx_node_block *block, const struct epx_plan *plan, int32_t node)
{
    const int32_t *tokens = plan->by_node->row_token + (int64_t)node * plan->shape.max_tokens;
    int32_t row = block->home_row[node] + block->home_rows[node];

    block->home_row[node] = row;
    while (row < plan->by_node->rows[node] && tokens[row] < block->tokens->end_token)
        row++;
    block->home_rows[node] = row - block->home_row[node];
}

/* Finds the entries of a home up to `end`, the block's end on all homes, some of which have more
 * tokens than this rank. */
static void find_entries(struct epx_node_block *block, const struct epx_plan *plan, int32_t end,
                         int32_t home)
{
    const struct epx_node_plan *by_node = plan->by_node;
    int64_t row = block->entry[home] + block->entry_rows[home];
    int32_t rows = epx_served_rows(by_node, home);

    block->entry[home] = row;
    while (row < rows && *epx_plan_entry(plan, home, row) < end)
        row++;
    block->entry_rows[home] = row - block->entry[home];
}

static void find_rows(struct epx_hier *hier, const struct epx_plan *plan)
{
    for (int32_t m = 0; m < plan->by_node->nodes.num_nodes; m++)
        find_home_rows(&hier->block, plan, m);
    for (int32_t s = 0; s < plan->num_ranks; s++)
        if (plan->by_node->served[s] >= 0)
            find_entries(&hier->block, plan, hier->staged->next_token, s);
}

static void pack_homes(struct epx_hier *hier, const struct epx_plan *plan)
{
    const struct epx_nodes *nodes = &plan->by_node->nodes;
    struct epx_staged *staged = hier->staged;
    struct epx_node_block *block = &hier->block;
    int64_t offset = 0;

    memset(staged->home_counts, 0, (size_t)plan->num_ranks * sizeof(*staged->home_counts));
    for (int32_t m = 0; m < nodes->num_nodes; m++) {
        int32_t relay = epx_relay(nodes, plan->rank, m);
        int64_t bytes = block->home_rows[m] * block->tokens->row_stride;

        if (m == nodes->own) {
            block->home_at[m] = 0;
            continue;
        }
        block->home_at[m] = offset;
        hier->home_displs[relay] = (int)offset;
        staged->home_counts[relay] = (int)bytes;
        offset += bytes;
    }
}

/* Places the entries. Dispatch: in the area, behind this rank's own rows. Combine: in the relay's
 * stage. */
static void pack_entries(struct epx_hier *hier, const struct epx_plan *plan, int gathers)
{
    struct epx_staged *staged = hier->staged;
    struct epx_node_block *block = &hier->block;
    int32_t me = plan->rank, own = plan->by_node->nodes.own;
    int64_t offset = gathers ? 0 : block->home_rows[own] * block->tokens->row_stride;

    for (int32_t s = 0; s < plan->num_ranks; s++) {
        int64_t bytes = block->entry_rows[s] * block->tokens->row_stride;

        block->entry_at[s] = offset;
        hier->relay_displs[s] = (int)offset;
        staged->expert_counts[s] = (int)bytes;
        offset += bytes;
    }
    block->entry_at[me] = 0;
    block->entry[me] = block->home_row[own];
}

int epx_hier_next_block(struct epx_request *request, int *moved)
{
    struct epx_hier *hier = epx_hier_of(request);
    struct epx_staged *staged = hier->staged;
    const struct epx_plan *plan = staged->plan;

    request->complete = !epx_staged_has_block(staged);
    *moved = request->complete || epx_hier_may_fill(hier, request);
    if (request->complete || !*moved)
        return EPX_SUCCESS;
    epx_staged_find_block(staged);
    hier->round++;
    epx_poison(epx_hier_area(hier), (size_t)staged->stage_bytes);
    epx_poison(staged->home_stage, (size_t)staged->stage_bytes);
    epx_poison(staged->expert_stage, (size_t)staged->stage_bytes);
    if (staged->block.segment == 0)
        find_rows(hier, plan);
    pack_homes(hier, plan);
    pack_entries(hier, plan, epx_verb_adds(request->call.verb));
    return EPX_SUCCESS;
}

void epx_hier_place_parts(struct epx_hier *hier)
{
    const struct epx_block *tokens = hier->block.tokens;
    int64_t offset = 0;

    for (int r = 0; r < hier->comm->size; r++) {
        hier->part_at[r] = offset;
        hier->parts[r] = epx_hier_area(hier) + offset;
        offset += tokens->expert_rows[r] * tokens->row_stride;
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* scenario.c - what a layer of the tests is made of. */
#include "support/scenario.h"

#include <stdio.h>

#include "support/data.h"
#include "support/space.h"
#include "support/suite.h"

/* So many experts more, and a routing on device memory is not small (EPX_SMALL_EXPERTS). */
enum { MORE_EXPERTS = 1024 };

struct scenario scenario_small(EPX_Datatype datatype)
{
    struct scenario s = {.seed = 7, .experts = 2 * suite_size + 1, .top_k = 3, .max_tokens = 12};

    s.tokens = TOKENS_UNEVEN;
    s.datatype = datatype;
    s.count = 37;
    return s;
}

struct scenario scenario_one_slot(EPX_Datatype datatype, int count)
{
    struct scenario s = scenario_small(datatype);

    s.top_k = 1;
    s.max_tokens = space_is_device() ? 60 : 12;
    s.tokens = TOKENS_FULL;
    s.count = count;
    return s;
}

void scenario_complete(struct scenario *s)
{
    s->alignment = s->alignment ? s->alignment : 1;
    s->index_bits = s->index_bits ? s->index_bits : 64;
    s->layout = s->layout ? s->layout : EPX_EXPERT_MAJOR;
    s->overflow = s->overflow ? s->overflow : EPX_OVERFLOW_ERROR;
    s->datatype = s->datatype ? s->datatype : EPX_FLOAT32;
    if (s->layout == EPX_EXPERT_SLAB && !s->rows_per_expert)
        s->rows_per_expert = (int64_t)suite_size * s->max_tokens * s->top_k;
}

static int pick(uint64_t seed, int what, int below)
{
    return data_below(seed, 91, (uint64_t)what, below);
}

static void random_rows(struct scenario *s, uint64_t seed)
{
    static const int counts[] = {1, 2, 3, 7, 16, 33, 64, 129, 1023, 1025, 2500};

    s->count = counts[pick(seed, 8, 11)];
    s->datatype = EPX_FLOAT16 + pick(seed, 9, 4);
    s->row_bytes_known = pick(seed, 10, 2);
    s->weightless = pick(seed, 11, 4) == 0;
    s->memory = (enum memory)pick(seed, 12, 3);
}

struct scenario scenario_random(uint64_t seed)
{
    static const int top_ks[] = {1, 2, 3, 4, 8, 17, 64};
    static const int percents[] = {0, 0, 100, 130, 60, 20};
    static const EPX_Layout layouts[] = {EPX_EXPERT_MAJOR, EPX_EXPERT_MAJOR, EPX_RANK_MAJOR,
                                         EPX_EXPERT_SLAB};
    struct scenario s = {.seed = seed};

    s.layout = layouts[pick(seed, 1, 4)];
    s.alignment = s.layout == EPX_EXPERT_MAJOR ? 1 << pick(seed, 2, 6) : 1;
    s.top_k = top_ks[pick(seed, 3, 7)];
    s.max_tokens = 1 + pick(seed, 4, s.top_k > 8 ? 4 : 20);
    s.experts = 1 + pick(seed, 5, pick(seed, 6, 2) ? 5 * suite_size : suite_size + 1);
    if (s.layout != EPX_EXPERT_SLAB && pick(seed, 19, 4) == 0)
        s.experts += MORE_EXPERTS;
    s.index_bits = pick(seed, 7, 2) ? 32 : 64;
    s.overflow = pick(seed, 13, 2) ? EPX_OVERFLOW_ERROR : EPX_OVERFLOW_DROP;
    s.routing = (enum routing_kind)pick(seed, 14, ROUTING_KINDS);
    s.tokens = (enum tokens_kind)(1 + pick(seed, 15, TOKENS_KINDS - 1));
    s.capacity_percent = percents[pick(seed, 17, 6)];
    s.zero_unused = pick(seed, 18, 3) == 0;
    s.distinct = pick(seed, 22, 4) == 0;
    random_rows(&s, seed);
    return s;
}

void scenario_add_tokens(struct scenario *s, uint64_t seed, int many)
{
    enum { LEAST = 300, MORE = 1500, MOST_BYTES = 8192 /* of a token's rows at its experts */ };

    if (space_is_device() && pick(seed, 20, many) == 0 &&
        scenario_row_bytes(s) * (size_t)s->top_k <= MOST_BYTES)
        s->max_tokens = LEAST + pick(seed, 21, MORE);
}

void scenario_print(const struct scenario *s)
{
    if (suite_rank)
        return;
    fprintf(
        stderr,
        "scenario: seed %llu experts %d top_k %d max_tokens %d alignment %d index_bits %d "
        "layout %d overflow %d routing %d tokens %d capacity_percent %d zero_unused %d distinct %d "
        "row_bytes_known %d datatype %d count %d zeros %d weightless %d memory %d "
        "ranks_per_node %d biases %d token_weighted %d tight %d\n",
        (unsigned long long)s->seed, s->experts, s->top_k, s->max_tokens, s->alignment,
        s->index_bits, s->layout, s->overflow, (int)s->routing, (int)s->tokens, s->capacity_percent,
        s->zero_unused, s->distinct, s->row_bytes_known, s->datatype, s->count, s->zeros,
        s->weightless, (int)s->memory, s->ranks_per_node, s->biases, s->token_weighted, s->tight);
}

int scenario_tokens(const struct scenario *s, uint64_t seed, int rank)
{
    switch (s->tokens) {
    case TOKENS_FULL: return s->max_tokens;
    case TOKENS_UNEVEN: return data_below(seed, 92, (uint64_t)rank, s->max_tokens + 1);
    case TOKENS_ONE_RANK: return rank == suite_size - 1 ? s->max_tokens : 0;
    case TOKENS_SOME_RANKS: return data_below(seed, 94, (uint64_t)rank, 2) ? s->max_tokens : 0;
    default: return 0;
    }
}

static int64_t bad_id(const struct scenario *s, uint64_t h)
{
    const int64_t far = s->index_bits == 64 ? ((int64_t)1 << 32) + 1 : INT32_MAX;
    const int64_t bad[] = {s->experts, -2, far, s->index_bits == 64 ? INT64_MIN : INT32_MIN,
                           s->experts + 1};

    return bad[h % 5];
}

int64_t scenario_id(const struct scenario *s, uint64_t seed, int rank, int pair)
{
    uint64_t h = data_hash(seed, 1000 + (uint64_t)rank, (uint64_t)pair);
    int64_t id = (int64_t)((h >> 8) % (uint64_t)s->experts);

    switch (s->routing) {
    case ROUTING_SKEWED:
        return id * (int64_t)((h >> 40) % 16) / 16 * (int64_t)((h >> 50) % 16) / 16;
    case ROUTING_ONE_EXPERT: return s->experts - 1;
    case ROUTING_HOLES: return h % 3 ? id : -1;
    case ROUTING_DUPLICATES: return (id + pair / s->top_k) % (s->experts < 2 ? 1 : 2);
    case ROUTING_BAD: return h % 11 ? id : bad_id(s, h >> 20);
    default: return id;
    }
}

size_t scenario_row_bytes(const struct scenario *s)
{
    return (size_t)s->count * data_size(s->datatype);
}

EPX_Route_attr scenario_attr(const struct scenario *s, int64_t capacity)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = s->experts;
    attr.top_k = s->top_k;
    attr.max_tokens = s->max_tokens;
    attr.alignment = s->alignment;
    attr.index_bits = s->index_bits;
    attr.layout = s->layout;
    attr.overflow = s->overflow;
    attr.recv_capacity = s->sets_capacity ? 0 : capacity;
    attr.rows_per_expert = s->rows_per_expert;
    attr.zero_unused = s->zero_unused;
    attr.distinct_experts = s->distinct;
    attr.max_row_bytes = s->row_bytes_known ? (int64_t)scenario_row_bytes(s) : 0;
    return attr;
}

/* What differs from the small scenario; R is the number of ranks. A routing to MANY experts is not
 * small on device memory. */
struct scenario scenario_edge(int i)
{
    struct scenario s = scenario_small(EPX_FLOAT32);
    const int R = suite_size, MANY = MORE_EXPERTS + R;
    const struct scenario edges[SCENARIO_EDGES] = {
        {.tokens = TOKENS_FULL},
        {.layout = EPX_RANK_MAJOR},
        {.alignment = 16},
        {.alignment = 2, .routing = ROUTING_ONE_EXPERT, .tokens = TOKENS_FULL},
        {.layout = EPX_RANK_MAJOR, .routing = ROUTING_ONE_EXPERT},
        {.routing = ROUTING_SKEWED, .experts = 16 * R, .top_k = 8},
        {.routing = ROUTING_HOLES},
        {.routing = ROUTING_HOLES, .layout = EPX_RANK_MAJOR, .index_bits = 32},
        {.routing = ROUTING_DUPLICATES, .alignment = 4},
        {.routing = ROUTING_DUPLICATES, .layout = EPX_RANK_MAJOR},
        {.routing = ROUTING_BAD},
        {.routing = ROUTING_BAD, .layout = EPX_RANK_MAJOR, .index_bits = 32},
        {.experts = 1},
        {.experts = R > 1 ? R - 1 : 1, .alignment = 8, .memory = MEMORY_WINDOW},
        {.experts = R > 1 ? R - 1 : 1, .layout = EPX_RANK_MAJOR},
        {.tokens = TOKENS_NONE, .alignment = 4},
        {.tokens = TOKENS_ONE_RANK, .alignment = 4},
        {.tokens = TOKENS_ONE_RANK, .layout = EPX_RANK_MAJOR, .memory = MEMORY_MIXED},
        {.top_k = 64, .max_tokens = 3},
        {.top_k = 64, .max_tokens = 3, .layout = EPX_RANK_MAJOR, .experts = 70 * R},
        {.top_k = 1, .experts = R},
        {.index_bits = 32, .memory = MEMORY_WINDOW},
        {.overflow = EPX_OVERFLOW_DROP, .capacity_percent = 60, .alignment = 8},
        {.overflow = EPX_OVERFLOW_DROP, .capacity_percent = 60, .layout = EPX_RANK_MAJOR},
        {.overflow = EPX_OVERFLOW_DROP, .capacity_percent = 10, .routing = ROUTING_DUPLICATES},
        {.capacity_percent = 60, .layout = EPX_RANK_MAJOR},
        {.capacity_percent = 60, .alignment = 4, .routing = ROUTING_BAD},
        {.capacity_percent = 100, .memory = MEMORY_WINDOW, .row_bytes_known = 1},
        {.memory = MEMORY_MIXED, .row_bytes_known = 1, .layout = EPX_RANK_MAJOR},
        {.memory = MEMORY_MIXED, .alignment = 32, .routing = ROUTING_SKEWED},
        {.weightless = 1, .memory = MEMORY_WINDOW},
        {.max_tokens = 40, .count = 1, .top_k = 4, .weightless = 1, .layout = EPX_RANK_MAJOR},
        {.sets_capacity = 1, .capacity_percent = 60, .overflow = EPX_OVERFLOW_DROP, .alignment = 4},
        {.sets_capacity = 1, .capacity_percent = 60, .layout = EPX_RANK_MAJOR},
        {.sets_capacity = 1, .capacity_percent = 130, .zero_unused = 1, .memory = MEMORY_WINDOW},
        {.zero_unused = 1, .alignment = 8, .memory = MEMORY_MIXED},
        {.zero_unused = 1, .layout = EPX_RANK_MAJOR},
        {.layout = EPX_EXPERT_SLAB},
        {.layout = EPX_EXPERT_SLAB, .capacity_percent = 100, .memory = MEMORY_WINDOW},
        {.layout = EPX_EXPERT_SLAB, .zero_unused = 1, .memory = MEMORY_MIXED},
        {.layout = EPX_EXPERT_SLAB, .capacity_percent = 50, .overflow = EPX_OVERFLOW_DROP},
        {.layout = EPX_EXPERT_SLAB,
         .capacity_percent = 1,
         .overflow = EPX_OVERFLOW_DROP,
         .zero_unused = 1,
         .routing = ROUTING_DUPLICATES,
         .row_bytes_known = 1},
        {.layout = EPX_EXPERT_SLAB, .capacity_percent = 60, .routing = ROUTING_BAD},
        {.layout = EPX_EXPERT_SLAB,
         .capacity_percent = 130,
         .routing = ROUTING_SKEWED,
         .experts = 16 * R,
         .top_k = 8,
         .index_bits = 32},
        {.layout = EPX_EXPERT_SLAB, .experts = R > 1 ? R - 1 : 1, .routing = ROUTING_HOLES},
        {.layout = EPX_EXPERT_SLAB,
         .capacity_percent = 60,
         .tokens = TOKENS_ONE_RANK,
         .overflow = EPX_OVERFLOW_DROP,
         .top_k = 64,
         .max_tokens = 3,
         .weightless = 1},
        {.experts = MANY, .alignment = 2, .routing = ROUTING_BAD},
        {.experts = MANY, .layout = EPX_RANK_MAJOR, .routing = ROUTING_HOLES, .top_k = 8},
        {.experts = MANY, .tokens = TOKENS_ONE_RANK, .memory = MEMORY_WINDOW, .row_bytes_known = 1},
        {.experts = MANY, .capacity_percent = 60},
        {.experts = MANY, .overflow = EPX_OVERFLOW_DROP, .capacity_percent = 60, .max_tokens = 40},
        {.experts = MANY,
         .overflow = EPX_OVERFLOW_DROP,
         .capacity_percent = 60,
         .layout = EPX_RANK_MAJOR,
         .routing = ROUTING_DUPLICATES},
        {.experts = MANY,
         .layout = EPX_EXPERT_SLAB,
         .capacity_percent = 50,
         .overflow = EPX_OVERFLOW_DROP,
         .routing = ROUTING_SKEWED},
        {.overflow = EPX_OVERFLOW_DROP, .capacity_percent = 40, .top_k = 64, .max_tokens = 3},
        {.overflow = EPX_OVERFLOW_DROP,
         .capacity_percent = 50,
         .layout = EPX_RANK_MAJOR,
         .top_k = 40,
         .max_tokens = 4,
         .routing = ROUTING_HOLES},
        {.distinct = 1, .experts = R, .top_k = 8, .alignment = 4},
        {.distinct = 1, .capacity_percent = 130, .routing = ROUTING_ONE_EXPERT, .top_k = 1},
        {.distinct = 1, .routing = ROUTING_DUPLICATES, .overflow = EPX_OVERFLOW_DROP, .top_k = 9},
    };
    struct scenario e = edges[i];

    e.seed = s.seed + (uint64_t)i;
    e.experts = e.experts ? e.experts : s.experts;
    e.top_k = e.top_k ? e.top_k : s.top_k;
    e.max_tokens = e.max_tokens ? e.max_tokens : s.max_tokens;
    e.tokens = e.tokens ? e.tokens : s.tokens;
    e.count = e.count ? e.count : s.count;
    e.datatype = s.datatype;
    return e;
}

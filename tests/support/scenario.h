/* SPDX-License-Identifier: BSD-3-Clause */
/* scenario.h - what a layer of the tests is made of: sizes, routing, memory, datatype. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include "support/buffer.h"

enum routing_kind {
    ROUTING_UNIFORM,
    ROUTING_SKEWED,     /* low experts far more often */
    ROUTING_ONE_EXPERT, /* all pairs to one */
    ROUTING_HOLES,      /* a third of the ids are -1 */
    ROUTING_DUPLICATES, /* few different ids in a token */
    ROUTING_BAD,        /* some ids out of range */
    ROUTING_KINDS
};

enum tokens_kind {
    TOKENS_FULL = 1,   /* max_tokens everywhere */
    TOKENS_UNEVEN,     /* 0 to max_tokens */
    TOKENS_ONE_RANK,   /* none but on the last rank */
    TOKENS_SOME_RANKS, /* max_tokens on about half of the ranks */
    TOKENS_NONE,
    TOKENS_KINDS
};

struct scenario {
    uint64_t seed;
    int experts, top_k, max_tokens;
    int alignment;         /* 0 = 1 */
    int index_bits;        /* 0 = 64 */
    EPX_Layout layout;     /* 0 = expert-major */
    EPX_Overflow overflow; /* 0 = error */
    enum routing_kind routing;
    enum tokens_kind tokens;
    int capacity_percent; /* of what the first routing needs; 0 = worst case */
    int sets_capacity;    /* by EPX_Route_set_capacity, after creation with the worst case */
    int zero_unused;
    int distinct;            /* claims that no token names an expert twice */
    int64_t rows_per_expert; /* EPX_EXPERT_SLAB: what capacity_percent comes to */
    int row_bytes_known;     /* sets max_row_bytes */
    EPX_Datatype datatype;   /* 0 = float32 */
    int count;
    int zeros; /* rows are zeros alone */
    int weightless;
    enum memory memory;
    int ranks_per_node; /* as the communicator's hint */
    int biases;         /* combine: rows that the sums start from */
    int token_weighted; /* combine: the home ranks give the weights; not in rank-major */
    int tight;          /* buffers that combine and the backwards read have num_rows rows */
};

/* A layer that most tests are content with. */
struct scenario scenario_small(EPX_Datatype datatype);
/* Some tokens of one slot each, with rows of so many elements. */
struct scenario scenario_one_slot(EPX_Datatype datatype, int count);
/* Any layer; the same on all ranks. */
struct scenario scenario_random(uint64_t seed);
/* On device memory one of so many layers gets so many tokens that its operations are not small, if
 * its rows are short enough for that. */
void scenario_add_tokens(struct scenario *scenario, uint64_t seed, int many);
/* Prints what is needed to repeat a failure, on standard error of rank 0. */
void scenario_print(const struct scenario *scenario);
/* Scenarios at the edges of the contract, each worth a few calls. */
#define SCENARIO_EDGES 58
struct scenario scenario_edge(int i);

/* Replaces members left 0 by their defaults; slabs have room for all pairs of a call. */
void scenario_complete(struct scenario *scenario);
/* The number of tokens of a rank, and the id of its pair, in the call with this seed. */
int scenario_tokens(const struct scenario *scenario, uint64_t seed, int rank);
int64_t scenario_id(const struct scenario *scenario, uint64_t seed, int rank, int pair);
size_t scenario_row_bytes(const struct scenario *scenario);
/* The attributes of a route for the scenario; capacity is this rank's, 0 = the worst case. */
EPX_Route_attr scenario_attr(const struct scenario *scenario, int64_t capacity);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_plan.h - what a routing leaves in device memory for dispatch and combine: records, relays
 * and the plan; and how rows are cut into rounds.
 */
#ifndef EPX_KERNELS_DEVICE_PLAN_H
#define EPX_KERNELS_DEVICE_PLAN_H

#include "kernels/layout.h"
#include "kernels/plan_shape.h"

struct epx_outcome;

/*
 * Rows of long tables go through a stage in rounds: `tokens` tokens and one segment at a time.
 * A dispatch stores the row of (source, token) at [source][token - first token] of the receiver's
 * stage, a combine stores a token's row at [token - first token][place]; a row takes `pitch` bytes.
 * In messages rows come in the order of records: the i-th row of the round from or for a rank lies
 * at [rank][i]; with relays message_rows.cuh tells where.
 */
struct epx_rounds {
    int32_t tokens;
    int32_t width; /* rows a token */
    int64_t pitch;
    struct epx_segments cut;
    int64_t num; /* rounds */
};

/* One round: a segment of the rows of some tokens. */
struct epx_round {
    int64_t first_token, end_token, segment;
    int32_t last; /* of its operation */
};

EPX_HD struct epx_round epx_round_of(const struct epx_rounds *rounds, int64_t number)
{
    struct epx_round round;

    round.segment = number % rounds->cut.num;
    round.first_token = number / rounds->cut.num * rounds->tokens;
    round.end_token = round.first_token + rounds->tokens;
    round.last = number + 1 == rounds->num;
    return round;
}

/*
 * A record on the wire and at the receiver, 16 bytes, and its pairs, 8 bytes each, somewhere behind
 * it among what comes from the same source: in a share of max_tokens * (16 + 8 * K) bytes, K
 * rounded up to an even number.
 * In messages, and in routings of few pairs, the pairs follow their record, which has room for K.
 * Else they come packed: max_tokens records one behind the other, then all pairs.
 * In messages the sender knows a pair by its index among its own pairs of that expert; the
 * receiver, once it has all counts, puts the slot there.
 */
struct epx_wire_record {
    int32_t token;
    uint32_t pairs_at; /* from the record's start, in pairs */
    uint8_t place;     /* among the token's ranks, in rank order */
    uint8_t num_pairs; /* that have room; in messages first all */
    uint8_t num_slots; /* as many; rank-major: 1 if the row has room */
    uint8_t unused[5];
};

struct epx_wire_pair {
    int32_t slot;           /* in messages first index among the sender's pairs of the expert */
    uint32_t expert_choice; /* local expert << 8 | choice */
};

/* Where the pairs of a record lie that follow it. */
enum { EPX_PAIRS_BEHIND = sizeof(struct epx_wire_record) / sizeof(struct epx_wire_pair) };

enum { EPX_MOST_DEVICE_EXPERTS = 1 << 24 }; /* of all ranks */

/* Most halves of a routing in one launch for each block that waits; routing_steps.cuh. */
enum { EPX_ROUTE_HALVES = 2 };

EPX_HD int64_t epx_wire_record_bytes(int32_t top_k)
{
    return 16 + 8 * epx_round_up(top_k, 2);
}

/* What a routing keeps of a pair, read and written in one access. */
struct epx_device_pair {
    int32_t expert;     /* -1 = none: the rest means nothing */
    int32_t index;      /* among this rank's pairs of the expert */
    int32_t row;        /* number of the row of (token, rank) */
    int32_t lead_place; /* first choice of the row << 8 | place of the row, in rank order */
};

/*
 * Where nodes have several ranks and exchange messages a row crosses to another node once, to its
 * home's relay there, which passes it on; sums come back the same way. A node row is a (token,
 * node); its number is its place among its home's rows for that node, in token order, dropped ones
 * too. Tables of such numbers hold (rows before << 1 | whether there is one). node_rows.h has the
 * relays, and the entries that tell relays of their node rows; entries follow a home's records.
 */
struct epx_device_nodes {
    int32_t num_nodes;     /* 0 = all rows go straight to their ranks */
    int32_t own, size;     /* this rank's node and how many ranks it has */
    int32_t num_served;    /* homes of other nodes that this rank is a relay for */
    int32_t num_far;       /* ranks of other nodes */
    int32_t shares, width; /* rows of a token that a stage takes: in shares, and with those that
                                are passed on; the same on all ranks */
    const int32_t *relay;  /* [N] this rank's relay on each node */
    const int32_t *ranks;  /* [size] */
    const int32_t *far;    /* [num_far] homes of other nodes, by who serves them */
    const int32_t *served; /* [num_served] the part of far that this rank serves */
    const int32_t *server; /* [R] who serves a home on this node; itself if it is here */
    const int32_t *index;  /* [R] place of each rank in its node */
    const int32_t *serves; /* [R] place of a home in served, -1 = it is not there */
    const int32_t *home_share, *relay_share; /* [R] share of a rank in the stages, -1 = none */
    int32_t *token_row;                      /* [N][max_tokens] numbers of this home's node rows */
    int32_t *passed; /* [num_served][max_tokens][size] number of each node row for each rank of
                        this node */
};

/* Device memory of one route. */
struct epx_device_plan {
    struct epx_plan_shape shape;
    int32_t most_rows;    /* rows of a token: min(K, R) */
    int64_t record_bytes; /* from a record to the next */
    int64_t record_share; /* bytes of all records from a source, and of its entries */
    struct epx_device_nodes nodes;

    const int32_t *owner; /* [E] */

    /* windows: tables of R addresses */
    char *const *counts;  /* at each rank int32[R][E + R + N + 1]: pairs of experts, rows of ranks,
                             and of other nodes where they are relayed, receive capacity */
    char *const *totals;  /* at each rank uint64[2][R][E + R + 1]: words with counts of all
                             blocks, see block_counts.cuh; not with messages */
    char *const *records; /* at each rank [R][max_tokens] records, with entries */
    char *const *weights; /* at each rank float[R][max_tokens][K]: of source ranks' pairs; the
                             first max_tokens * K take the gradients of this rank's own pairs */
    char *const *stage;
    int64_t stage_bytes;

    /* with messages: records[r] of another rank r is memory here, from which they are sent */
    char *outgoing, *incoming; /* stages of stage_bytes; NULL else */
    char *outgoing_records;    /* [R][max_tokens] by the rank that they are for */
    int32_t *token_row;        /* [max_tokens][most_rows] number of the row among its rank's */

    /* home side */
    struct epx_device_pair *pairs; /* [max_tokens][K] */
    int32_t *pair_rank;            /* [max_tokens][K] where the pair travels to, -1 = it does not */
    int32_t *token_num;            /* [max_tokens] rows of a token */
    int32_t *token_rank;           /* [max_tokens][most_rows] in rank order */
    int32_t *token_slot;           /* [max_tokens][most_rows] first slot there, -1 = dropped */
    int32_t *send_rows;            /* [R] rows kept */

    /* expert side */
    int32_t *recv_rows;    /* [R] rows kept */
    float *row_weights;    /* with messages [capacity]: of a combine whose home ranks have them */
    int64_t *base;         /* [E] first slot of this rank's pairs of each expert, if many */
    int64_t *from;         /* [L][R] first slot of each source's pairs, if many; rank-major [R] */
    uint64_t *block_words; /* [2][blocks or halves][counters], see block_counts.cuh; NULL with
                              messages */
    int32_t *block_counts; /* with messages [blocks][counters] */
    int32_t *warp_counts;  /* [blocks][3][counters], used where shared memory is too small */

    struct epx_plan_view view;
    struct epx_outcome *outcome; /* of the routing; if it failed so do operations on it */
    uint64_t *bad;               /* [2] how many bad ids, and the first: inverted pair index */
    int64_t *dropped;
};

EPX_HD struct epx_wire_record *epx_wire_record_at(const struct epx_device_plan *plan, char *records,
                                                  int32_t source, int64_t row)
{
    return (struct epx_wire_record *)(void *)(records + source * plan->record_share +
                                              row * plan->record_bytes);
}

/* How many counts of one source are in the count matrix. */
EPX_HD int32_t epx_num_counts(const struct epx_device_plan *plan, int32_t num_ranks)
{
    return plan->shape.num_experts + num_ranks + plan->nodes.num_nodes + 1;
}

/* Where a pair of a packed record lies, given its place among the pairs of all. */
EPX_HD uint32_t epx_packed_at(const struct epx_device_plan *plan, int32_t row, uint32_t number)
{
    return (uint32_t)EPX_PAIRS_BEHIND * (uint32_t)(plan->shape.max_tokens - row) + number;
}

/* How many things a block counts: without messages also its pairs for each rank. */
EPX_HD int32_t epx_num_counters(const struct epx_device_plan *plan, int32_t num_ranks)
{
    return epx_num_counts(plan, num_ranks) + (plan->block_words ? num_ranks : 0);
}

/* Whether a relay is told of the last choice of each sum, and so whether there is one. */
EPX_HD int epx_tells_kept(const struct epx_plan_shape *shape)
{
    return shape->drops || shape->by_choice;
}

/* The most slots that the row of a record has. */
EPX_HD int32_t epx_most_slots_of_record(const struct epx_plan_shape *shape)
{
    return shape->rank_major ? 1 : shape->top_k;
}

EPX_HD struct epx_wire_pair *epx_wire_pairs_at(struct epx_wire_record *record, uint32_t pairs_at)
{
    return (struct epx_wire_pair *)(void *)record + pairs_at;
}

EPX_HD struct epx_wire_pair *epx_wire_pairs(struct epx_wire_record *record)
{
    return epx_wire_pairs_at(record, record->pairs_at);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * message_rows.cuh - which rows go in the messages of a round, and where they lie in the stages.
 *
 * Where rows go straight to their ranks each rank has a share of a stage, rounds.tokens rows long,
 * in the order of records. With relays there are two exchanges; dispatch does them in this order,
 * combine in the other:
 *   outside  a home's rows for the ranks of its node, and its node rows for its relays on other
 *            nodes; in shares, as many as a rank has partners, not as there are ranks.
 *   inside   each node: what relays pass on to the ranks that need it, behind the shares. It lies
 *            at a relay by (rank, home) and at a rank by (relay, home); the rows of each home come
 *            in the order of records.
 * Both sides know from counts, records and entries how many rows a message has.
 */
#ifndef EPX_KERNELS_WIRES_MESSAGE_ROWS_CUH
#define EPX_KERNELS_WIRES_MESSAGE_ROWS_CUH

#include "kernels/node_rows.h"
#include "kernels/protocol/records.cuh"
#include "kernels/ring.h"
#include "kernels/wires/numbering.cuh"

#ifdef __CUDACC__

/* Which rows of each list go in a round, by number, and which row of a stage the first one is. */
struct message_rows {
    int32_t send_first[EPX_MOST_DEVICE_RANKS], send_end[EPX_MOST_DEVICE_RANKS]; /* home: for each
                                                        rank; for a relay on another node, its
                                                        node rows; else none */
    int32_t recv_first[EPX_MOST_DEVICE_RANKS], recv_end[EPX_MOST_DEVICE_RANKS]; /* expert's rank:
                                                        records from each source */
    int32_t node_first[EPX_MOST_DEVICE_RANKS], node_end[EPX_MOST_DEVICE_RANKS]; /* relay: node
                                                        rows of each home served here */
    int64_t home_at[EPX_MOST_DEVICE_RANKS], expert_at[EPX_MOST_DEVICE_RANKS];
};

/* A run of rows of a stage. */
struct run {
    int64_t at, num;
};

/* Whether rows to or from the rank pass no relay. */
static __device__ __forceinline__ bool goes_straight(const struct epx_device_plan &plan,
                                                     const struct epx_device_comm &c, int32_t rank)
{
    return plan.nodes.num_nodes == 0 || c.node[rank] == plan.nodes.own;
}

static __device__ __forceinline__ const int32_t *
counts_of(const struct epx_device_plan &plan, const struct epx_device_comm &c, int32_t source)
{
    return (const int32_t *)(const void *)plan.counts[c.rank] +
           (int64_t)source * epx_num_counts(&plan, c.num_ranks);
}

/* Unique rows from a source for a rank, dropped ones too. */
static __device__ __forceinline__ int32_t num_records(const struct epx_device_plan &plan,
                                                      const struct epx_device_comm &c,
                                                      int32_t source, int32_t rank)
{
    return counts_of(plan, c, source)[plan.shape.num_experts + rank];
}

static __device__ __forceinline__ int32_t num_node_rows(const struct epx_device_plan &plan,
                                                        const struct epx_device_comm &c,
                                                        int32_t home, int32_t node)
{
    return counts_of(plan, c, home)[plan.shape.num_experts + c.num_ranks + node];
}

/* The entry of a node row among records at this address, behind those from a home for a rank. */
static __device__ __forceinline__ int32_t *entry_behind(const struct epx_device_plan &plan,
                                                        char *records, int32_t home, int32_t num,
                                                        int64_t row)
{
    return epx_entry_at((int32_t *)(void *)epx_wire_record_at(&plan, records, home, num),
                        plan.shape.top_k, row);
}

static __device__ __forceinline__ int32_t *entry_of(const struct epx_device_plan &plan,
                                                    const struct epx_device_comm &c, int32_t home,
                                                    int64_t row)
{
    return entry_behind(plan, plan.records[c.rank], home, num_records(plan, c, home, c.rank), row);
}

/* Home side: how many node rows this rank has for a node, of tokens below this one. */
static __device__ int32_t node_rows_below(const struct epx_device_plan &plan,
                                          const struct epx_device_comm &c, int32_t node,
                                          int64_t token)
{
    return token < plan.shape.max_tokens
               ? rows_before(plan.nodes.token_row[(int64_t)node * plan.shape.max_tokens + token])
               : num_node_rows(plan, c, c.rank, node);
}

/* Relay: how many node rows a home that it serves has for this node, of tokens below this one. */
static __device__ int32_t entries_below(const struct epx_device_plan &plan,
                                        const struct epx_device_comm &c, int32_t home,
                                        int64_t token)
{
    int32_t low = 0, high = num_node_rows(plan, c, home, plan.nodes.own);

    while (low < high) {
        int32_t middle = (low + high) / 2;

        if (*entry_of(plan, c, home, middle) < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static __device__ int32_t first_to_send(const struct epx_device_plan &plan,
                                        const struct epx_device_comm &c, int32_t rank,
                                        int64_t token)
{
    if (goes_straight(plan, c, rank))
        return (int32_t)first_of_records(plan, plan.records[rank], c.rank,
                                         num_records(plan, c, c.rank, rank), token);
    return plan.nodes.relay[c.node[rank]] == rank ? node_rows_below(plan, c, c.node[rank], token)
                                                  : 0;
}

static __device__ int32_t first_of_node_rows(const struct epx_device_plan &plan,
                                             const struct epx_device_comm &c, int32_t home,
                                             int64_t token)
{
    return plan.nodes.num_nodes && plan.nodes.serves[home] >= 0
               ? entries_below(plan, c, home, token)
               : 0;
}

/* One thread: places the rows that come from other nodes, behind the shares. */
static __device__ void place_passed(const struct epx_device_nodes &nodes,
                                    const struct epx_rounds &rounds, struct message_rows &rows)
{
    int64_t at = (int64_t)nodes.shares * rounds.tokens;

    for (int32_t i = 0; i < nodes.num_far; i++) {
        int32_t home = nodes.far[i];

        rows.expert_at[home] = at;
        at += rows.recv_end[home] - rows.recv_first[home];
    }
}

/* The whole block. Both sides have the same lists of tokens, so the counts match. */
static __device__ void find_message_rows(const struct epx_device_plan &plan,
                                         const struct epx_device_comm &c,
                                         const struct epx_rounds &rounds,
                                         const struct epx_round &round, struct message_rows &rows)
{
    const struct epx_device_nodes &nodes = plan.nodes;

    for (int32_t i = (int32_t)threadIdx.x; i < 6 * c.num_ranks; i += (int32_t)blockDim.x) {
        int32_t r = i % c.num_ranks, what = i / c.num_ranks;
        int64_t token = what % 2 ? round.end_token : round.first_token;

        if (what < 2)
            (what % 2 ? rows.send_end : rows.send_first)[r] = first_to_send(plan, c, r, token);
        else if (what < 4)
            (what % 2 ? rows.recv_end : rows.recv_first)[r] =
                (int32_t)first_record(plan, plan.records[c.rank], r, token);
        else
            (what % 2 ? rows.node_end : rows.node_first)[r] = first_of_node_rows(plan, c, r, token);
    }
    __syncthreads();
    for (int32_t r = (int32_t)threadIdx.x; r < c.num_ranks; r += (int32_t)blockDim.x) {
        rows.home_at[r] = (int64_t)(nodes.num_nodes ? nodes.home_share[r] : r) * rounds.tokens;
        if (goes_straight(plan, c, r))
            rows.expert_at[r] =
                (int64_t)(nodes.num_nodes ? nodes.relay_share[r] : r) * rounds.tokens;
    }
    if (nodes.num_nodes && threadIdx.x == 0)
        place_passed(nodes, rounds, rows);
    __syncthreads();
}

/* The whole block: the records of a round. */
static __device__ void range_of_rows(const struct epx_device_comm &c,
                                     const struct message_rows &rows, struct record_range &range)
{
    for (int32_t s = (int32_t)threadIdx.x; s < c.num_ranks; s += (int32_t)blockDim.x) {
        range.first[s] = rows.recv_first[s];
        range.end[s] = rows.recv_end[s];
    }
    if (threadIdx.x == 0) {
        range.num_ranks = c.num_ranks;
        range.num = 0;
        for (int32_t s = 0; s < c.num_ranks; s++)
            range.num += rows.recv_end[s] - rows.recv_first[s];
    }
    __syncthreads();
}

static __device__ __forceinline__ char *row_in_stage(char *stage, const struct epx_rounds &rounds,
                                                     int64_t row)
{
    return stage + row * rounds.pitch;
}

static __device__ __forceinline__ struct epx_message
message_of_runs(const struct epx_rounds &rounds, const struct run &send, const struct run &recv)
{
    return epx_message{send.at * rounds.pitch, send.num * rounds.pitch, recv.at * rounds.pitch,
                       recv.num * rounds.pitch};
}

/* Where a relay, or an expert's rank of the home's node, has a home's rows. */
static __device__ struct run run_from_home(const struct epx_device_plan &plan,
                                           const struct epx_device_comm &c,
                                           const struct epx_rounds &rounds,
                                           const struct message_rows &rows, int32_t home)
{
    if (goes_straight(plan, c, home))
        return {rows.expert_at[home], rows.recv_end[home] - rows.recv_first[home]};
    if (plan.nodes.serves[home] < 0)
        return {0, 0};
    return {(int64_t)plan.nodes.relay_share[home] * rounds.tokens,
            rows.node_end[home] - rows.node_first[home]};
}

/* What goes between this rank and another, straight or outside. */
static __device__ struct epx_message message_of_rows(const struct epx_device_plan &plan,
                                                     const struct epx_device_comm &c,
                                                     const struct epx_rounds &rounds,
                                                     const struct message_rows &rows, int32_t rank,
                                                     bool to_experts)
{
    struct run home = {rows.home_at[rank], rows.send_end[rank] - rows.send_first[rank]};
    struct run away = run_from_home(plan, c, rounds, rows, rank);

    if (home.num == 0)
        home.at = 0; /* a rank that is no partner has no share */
    return to_experts ? message_of_runs(rounds, home, away) : message_of_runs(rounds, away, home);
}

/* Home side: whether the i-th row of a token has a message: it was kept, and goes straight or is
 * the first kept one to its node. */
static __device__ bool has_message(const struct epx_device_plan &plan,
                                   const struct epx_device_comm &c, int64_t token, int32_t i)
{
    const int32_t *rank = plan.token_rank + token * plan.most_rows;
    const int32_t *slot = plan.token_slot + token * plan.most_rows;
    bool first = slot[i] >= 0;

    if (!first || goes_straight(plan, c, rank[i]))
        return first;
    for (int32_t other = 0; other < i; other++)
        first = first && (slot[other] < 0 || c.node[rank[other]] != c.node[rank[i]]);
    return first;
}

/* Home side: which row of a stage the i-th row of a token is, if it has a message. */
static __device__ int64_t row_at_home(const struct epx_device_plan &plan,
                                      const struct epx_device_comm &c,
                                      const struct message_rows &rows, int64_t token, int32_t i)
{
    int32_t rank = plan.token_rank[token * plan.most_rows + i];
    int32_t row = plan.token_row[token * plan.most_rows + i];

    if (!goes_straight(plan, c, rank)) {
        row = node_rows_below(plan, c, c.node[rank], token);
        rank = plan.nodes.relay[c.node[rank]];
    }
    return rows.home_at[rank] + row - rows.send_first[rank];
}

/* The weights of a row's pairs follow it, one for each choice. */
static __device__ __forceinline__ float *weights_behind(char *row, const struct epx_rounds &rounds)
{
    return (float *)(void *)(row + epx_round_up(rounds.cut.bytes, 16));
}

#endif

#endif

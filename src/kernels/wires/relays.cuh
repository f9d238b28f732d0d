/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * relays.cuh - what a relay does: it finds which of its node rows go to, or come from, which rank
 * of its node, and where they lie. message_rows.cuh has the exchanges.
 */
#ifndef EPX_KERNELS_WIRES_RELAYS_CUH
#define EPX_KERNELS_WIRES_RELAYS_CUH

#include "kernels/warp/copy_row.cuh"
#include "kernels/wires/message_rows.cuh"

#ifdef __CUDACC__

/* The rows that a relay passes on, or gets, in a round, by (rank of the node, home). */
struct passing {
    int32_t num;                           /* node rows of the round */
    int64_t at[EPX_MOST_DEVICE_RANKS + 1]; /* the first of each rank in a stage, in rows of it */
    int32_t *first; /* [num_served][size] dynamic shared memory: where a home's first row for a
                           rank would lie behind at[0] if its numbers began with 0 */
};

static inline size_t epx_passing_bytes(const struct epx_device_nodes *nodes)
{
    return (size_t)nodes->num_served * (size_t)nodes->size * sizeof(int32_t);
}

/* The number of a node row among its home's for a rank of this node. */
static __device__ __forceinline__ int32_t *passed_number(const struct epx_device_plan &plan,
                                                         int32_t served, int64_t row, int32_t index)
{
    return plan.nodes.passed + ((int64_t)served * plan.shape.max_tokens + row) * plan.nodes.size +
           index;
}

static __device__ int32_t passed_below(const struct epx_device_plan &plan,
                                       const struct epx_device_comm &c, int32_t served, int32_t row,
                                       int32_t index)
{
    int32_t home = plan.nodes.served[served];

    return row < num_node_rows(plan, c, home, plan.nodes.own)
               ? rows_before(*passed_number(plan, served, row, index))
               : num_records(plan, c, home, plan.nodes.ranks[index]);
}

/* One thread: turns the numbers of rows in passing.first into where rows lie. */
static __device__ void place_passing(const struct epx_device_nodes &nodes,
                                     const struct epx_rounds &rounds,
                                     const struct message_rows &rows, struct passing &passing)
{
    int64_t start = (int64_t)nodes.shares * rounds.tokens, at = start;

    passing.num = 0;
    for (int32_t i = 0; i < nodes.num_served; i++)
        passing.num += rows.node_end[nodes.served[i]] - rows.node_first[nodes.served[i]];
    for (int32_t index = 0; index < nodes.size; index++) {
        passing.at[index] = at;
        for (int32_t i = 0; i < nodes.num_served; i++) {
            int32_t num = passing.first[i * nodes.size + index];

            passing.first[i * nodes.size + index] = (int32_t)(at - start);
            at += num;
        }
    }
    passing.at[nodes.size] = at;
}

/* The whole block; rows were found before. */
static __device__ void find_passing(const struct epx_device_plan &plan,
                                    const struct epx_device_comm &c,
                                    const struct epx_rounds &rounds,
                                    const struct message_rows &rows, struct passing &passing)
{
    extern __shared__ int32_t firsts[];
    const struct epx_device_nodes &nodes = plan.nodes;
    int32_t all = nodes.num_served * nodes.size;

    if (threadIdx.x == 0)
        passing.first = firsts;
    for (int32_t i = (int32_t)threadIdx.x; i < all; i += (int32_t)blockDim.x) {
        int32_t served = i / nodes.size, index = i % nodes.size, home = nodes.served[served];

        firsts[i] = passed_below(plan, c, served, rows.node_end[home], index) -
                    passed_below(plan, c, served, rows.node_first[home], index);
    }
    __syncthreads();
    if (threadIdx.x == 0)
        place_passing(nodes, rounds, rows, passing);
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < all; i += (int32_t)blockDim.x) {
        int32_t served = i / nodes.size, home = nodes.served[served];

        firsts[i] -= passed_below(plan, c, served, rows.node_first[home], i % nodes.size);
    }
    __syncthreads();
}

/* Whether the rank is on this node: it serves itself then. */
static __device__ __forceinline__ bool is_here(const struct epx_device_nodes &nodes, int32_t rank)
{
    return nodes.server[rank] == rank;
}

/* Where the rows of another node's homes lie that a relay of this node passes to this rank. */
static __device__ struct run run_from_relay(const struct epx_device_nodes &nodes,
                                            const struct message_rows &rows, int32_t relay)
{
    struct run run = {0, 0};

    for (int32_t i = 0; i < nodes.num_far; i++) {
        int32_t home = nodes.far[i];

        if (nodes.server[home] != relay)
            continue;
        run.at = run.num ? run.at : rows.expert_at[home];
        run.num += rows.recv_end[home] - rows.recv_first[home];
    }
    return run;
}

/* What goes between this rank and another inside the node; nothing if that is on another node. */
static __device__ struct epx_message message_inside(const struct epx_device_nodes &nodes,
                                                    const struct epx_rounds &rounds,
                                                    const struct message_rows &rows,
                                                    const struct passing &passing, int32_t rank,
                                                    bool to_experts)
{
    int32_t index = nodes.index[rank];
    struct run relay = {0, 0}, expert = {0, 0};

    if (is_here(nodes, rank)) {
        relay = {passing.at[index], passing.at[index + 1] - passing.at[index]};
        expert = run_from_relay(nodes, rows, rank);
    }
    return to_experts ? message_of_runs(rounds, relay, expert)
                      : message_of_runs(rounds, expert, relay);
}

/* A node row of the round at this relay. */
struct node_row {
    int32_t served, home;
    int32_t row;
};

/* The index-th node row of the round, by home. */
static __device__ struct node_row find_node_row(const struct epx_device_nodes &nodes,
                                                const struct message_rows &rows, int64_t index)
{
    struct node_row at = {0, nodes.served[0], (int32_t)index};

    while (at.row >= rows.node_end[at.home] - rows.node_first[at.home]) {
        at.row -= rows.node_end[at.home] - rows.node_first[at.home];
        at.home = nodes.served[++at.served];
    }
    at.row += rows.node_first[at.home];
    return at;
}

/* Outside: where the relay has a node row. */
static __device__ char *place_at_relay(const struct epx_device_plan &plan,
                                       const struct epx_rounds &rounds,
                                       const struct message_rows &rows, char *stage,
                                       const struct node_row &at)
{
    return row_in_stage(stage, rounds,
                        (int64_t)plan.nodes.relay_share[at.home] * rounds.tokens + at.row -
                            rows.node_first[at.home]);
}

/* Inside: where a node row lies for, or from, a rank of the node; NULL = the rank needs it not. */
static __device__ char *place_for_rank(const struct epx_device_plan &plan,
                                       const struct epx_rounds &rounds,
                                       const struct passing &passing, char *stage,
                                       const struct node_row &at, int32_t index)
{
    int32_t number = *passed_number(plan, at.served, at.row, index);
    int64_t first = passing.first[at.served * plan.nodes.size + index];

    return is_row(number) ? row_in_stage(stage, rounds, passing.at[0] + first + rows_before(number))
                          : NULL;
}

/* The whole warp: lists the places of a node row that are not NULL, by rank of the node; returns
 * how many there are. */
template <typename Place>
static __device__ int32_t list_ranks(const struct epx_device_nodes &nodes, Place place_of,
                                     int64_t offset, struct row_list &list)
{
    int32_t num = 0;

    for (int32_t first = 0; first < nodes.size; first += EPX_WARP) {
        int32_t index = first + lane_id();
        char *place = index < nodes.size ? place_of(index) : NULL;
        uint32_t lanes = __ballot_sync(~0u, place != NULL);

        if (place)
            list.row[num + __popc(lanes & lanes_below())] = place + offset;
        num += __popc(lanes);
    }
    __syncwarp();
    return num;
}

#endif

#endif

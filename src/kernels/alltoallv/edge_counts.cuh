/* SPDX-License-Identifier: BSD-3-Clause */
/* edge_counts.cuh - what kernels know of the edges of a graph in an exchange along them, whether
 * ranks store into each other's memory or exchange messages. */
#ifndef EPX_KERNELS_ALLTOALLV_EDGE_COUNTS_CUH
#define EPX_KERNELS_ALLTOALLV_EDGE_COUNTS_CUH

#include "kernels/alltoallv/count_checks.cuh"
#include "kernels/protocol/protocol.cuh"

/* Rows along the edges; in shared memory. */
struct edge_counts {
    int64_t sent[EPX_MOST_EDGES];       /* rows, for each destination */
    int64_t sent_from[EPX_MOST_EDGES];  /* own displacements */
    int64_t came[EPX_MOST_EDGES];       /* rows, from each source */
    int64_t came_place[EPX_MOST_EDGES]; /* where they go here */
    int64_t total;                      /* rows that come here */
    int32_t takes;                      /* whether this rank takes its rows */
    int32_t bad;                        /* the first destination with an invalid count; -1 = none */
    int32_t odd_source, odd_destination; /* the first with rows of another length; -1 = none */
};

/* One warp: reads the counts of the edges; one invalid count makes all of them 0. */
static __device__ void read_edge_counts(const struct epx_neighbor_rows &n, struct edge_counts &e)
{
    const int32_t bad = read_counts(n.rows, n.destinations.num, e.sent, e.sent_from);

    for (int32_t i = lane_id(); bad >= 0 && i < n.destinations.num; i += EPX_WARP)
        e.sent[i] = 0;
    if (lane_id() == 0)
        e.bad = bad;
    __syncwarp();
}

/* Whether the rank at the other end of an edge has rows of another length. */
static __device__ __forceinline__ bool is_odd(const struct epx_neighbor_rows &n,
                                              const struct exchange &x, int32_t rank)
{
    return ready_long(x, rank, EPX_READY_EDGE_ROW_LOW) != n.rows.row_bytes;
}

/* One warp: the first edge of a list whose other rank has rows of another length, -1 = none. */
static __device__ int32_t find_odd(const struct epx_neighbor_rows &n, const struct exchange &x,
                                   const struct epx_edge_list &list)
{
    int32_t odd = -1;

    for (int32_t first = 0; odd < 0 && first < list.num; first += EPX_WARP) {
        int32_t i = first + lane_id();
        uint32_t lanes = __ballot_sync(~0u, i < list.num && is_odd(n, x, list.rank[i]));

        odd = lanes ? first + __ffs((int)lanes) - 1 : -1;
    }
    return odd;
}

/* One warp: where the rows of each source go here, one source behind the other; tells the user if
 * it shows them. Returns how many rows come along all edges. */
static __device__ int64_t place_edges(const struct epx_neighbor_rows &n, struct edge_counts &e,
                                      bool shows)
{
    int32_t edges = n.sources.num;
    int64_t rows = 0;

    for (int32_t first = 0; first < edges; first += EPX_WARP) {
        int32_t i = first + lane_id(), lanes = edges - first < EPX_WARP ? edges - first : EPX_WARP;
        int64_t count = i < edges ? e.came[i] : 0, through = scan_capped(count, lanes);
        int64_t place = add_capped(rows, before_lane(through));

        if (i < edges)
            e.came_place[i] = place;
        if (i < edges && shows) {
            n.rows.recvcounts[i] = count;
            n.rows.rdispls[i] = place;
        }
        rows = add_capped(rows, __shfl_sync(~0u, through, lanes - 1));
    }
    return rows;
}

/* One warp, once the ranks were found to agree and the counts have come: finds where rows go, and
 * whether they are taken. */
static __device__ void settle_edges(const struct epx_neighbor_rows &n, const struct exchange &x,
                                    struct edge_counts &e, bool shows)
{
    int32_t odd_source = find_odd(n, x, n.sources), odd = find_odd(n, x, n.destinations);
    int64_t total = place_edges(n, e, shows);

    if (lane_id() == 0) {
        e.total = total;
        e.takes = odd_source < 0 && total <= n.rows.recv_capacity;
        e.odd_source = odd_source;
        e.odd_destination = odd;
    }
    __syncwarp();
}

/* One thread: counts the rows that were sent. */
static __device__ void count_edge_rows(const struct epx_neighbor_rows &n,
                                       const struct edge_counts &e)
{
    const struct epx_device_comm &c = n.rows.comm;
    uint64_t self = 0, node = 0, network = 0;

    for (int32_t i = 0; i < n.destinations.num; i++) {
        int32_t rank = n.destinations.rank[i];

        if (rank == c.rank)
            self += (uint64_t)e.sent[i];
        else if (c.node && c.node[rank] != c.node[c.rank])
            network += (uint64_t)e.sent[i];
        else
            node += (uint64_t)e.sent[i];
    }
    add_rows(c, self, node, network, n.rows.row_bytes);
}

/* How an exchange ended for this rank that was not given up, and on which the ranks agreed. */
static __device__ EPX_COLD struct epx_outcome outcome_of_edges(const struct epx_neighbor_rows &n,
                                                               const struct exchange &x,
                                                               const struct edge_counts &e)
{
    const bool sends = e.odd_source >= 0;
    int32_t rank;

    if (!sends && e.odd_destination < 0)
        return outcome_of_counts(n.rows, e.bad, e.total);
    rank = sends ? n.sources.rank[e.odd_source] : n.destinations.rank[e.odd_destination];
    return {EPX_ERR_ARG,
            EPX_OUTCOME_EDGE,
            rank,
            0,
            ready_long(x, rank, EPX_READY_EDGE_ROW_LOW),
            n.rows.row_bytes,
            sends};
}

#endif

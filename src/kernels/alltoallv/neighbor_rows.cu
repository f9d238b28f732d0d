/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * neighbor_rows.cu - an exact exchange of rows along the edges of a graph: a rank tells only its
 * destinations counts. Few rows go with them, in packets. For many rows the destination answers
 * where they go, which it alone knows, because only its sources tell it counts; then they are
 * stored as those of an alltoallv are. All ranks take part in the ready words, in which each tells
 * how many bytes of an edge it stores at most, so all know the number of rounds, and in these.
 * Work: reads and writes the rows that are sent. Order: none, every byte has one writer.
 * Launch: comm.blocks blocks, which wait for other ranks; ends the operation.
 */
#include "kernels/alltoallv/edge_counts.cuh"
#include "kernels/alltoallv/row_steps.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"

static_assert((int)EPX_MOST_EDGES <= (int)EPX_MOST_DEVICE_RANKS,
              "lists of packets and turns have room");

/* What every block works out for itself; in shared memory. */
struct edge_rows : edge_counts {
    struct epx_ready_note note;       /* with what this rank stores */
    int64_t granted[EPX_MOST_EDGES];  /* where rows go at each destination; -1 = nowhere */
    unsigned long long most_bytes;    /* of an edge that are stored */
    uint32_t most_units;              /* the same of all ranks, as the ready words have it */
    int32_t any_staged;               /* whether a rank takes rows in its stage */
    struct packet_list packets;       /* to the destinations, then from the sources */
    struct copy copy[EPX_MOST_EDGES]; /* of a round: to the destinations, then from the sources */
    struct turns turns;               /* of a round */
};

/* Who packets come from where the list has an entry for each edge. */
struct edge_sources {
    int32_t num;
    const struct epx_edge_list &list;

    __device__ __forceinline__ int32_t rank(int32_t entry) const
    {
        return list.rank[entry];
    }
};

/* The packets of an edge in bank 0 of the control window of the rank where it ends; list has it at
 * place i, and source is the rank where it begins. */
static __device__ __forceinline__ uint64_t *packets_of_edge(const struct epx_neighbor_rows &n,
                                                            const struct epx_edge_list &list,
                                                            int32_t i, char *control,
                                                            int32_t source)
{
    return epx_control_packets(control, n.rows.comm.num_ranks, n.rows.packet_words, source) +
           list.turn[i] * n.edge_packets;
}

/* One warp: lists the packets for the destinations, and finds the most bytes that go otherwise. An
 * edge to this rank itself is copied in the first round, however long it is. */
static __device__ void plan_edges(const struct epx_neighbor_rows &n, struct edge_rows &e)
{
    const struct epx_alltoallv_rows &a = n.rows;
    int32_t edges = n.destinations.num, num = 0;

    for (int32_t first = 0; first < edges; first += EPX_WARP) {
        int32_t i = first + lane_id(), at = i < edges ? i : 0;
        int64_t count = i < edges ? e.sent[at] : 0, bytes = count * a.row_bytes;
        bool stays = n.destinations.rank[at] == a.comm.rank;

        if (!is_packed(a, count))
            atomicMax(&e.most_bytes, stays ? 1ull : (unsigned long long)bytes);
        num = list_packets(e.packets, i, lanes_from(edges, first), num,
                           {(char *)(uintptr_t)a.rows + e.sent_from[at] * a.row_bytes,
                            packets_of_edge(n, n.destinations, at,
                                            a.comm.control[n.destinations.rank[at]], a.comm.rank),
                            is_packed(a, count) ? bytes : 0});
    }
    __syncwarp();
}

/* One warp, before anything is known of the other ranks. */
static __device__ void plan_and_note(const struct epx_neighbor_rows &n, struct edge_rows &e)
{
    if (lane_id() == 0) {
        e.packets.first[0] = 0;
        e.most_bytes = 0;
        e.most_units = 0;
        e.any_staged = 0;
    }
    __syncwarp();
    read_edge_counts(n, e);
    plan_edges(n, e);
    if (lane_id() < EPX_READY_WORDS)
        e.note.word[lane_id()] = n.rows.note.word[lane_id()];
    __syncwarp();
    if (lane_id() == 0)
        e.note.word[EPX_READY_EDGE_STORED] =
            EPX_READY_NONE_STORED +
            (uint32_t)((e.most_bytes + EPX_STORED_UNIT - 1) / EPX_STORED_UNIT);
}

static __device__ void post_edge_counts(const struct epx_neighbor_rows &n, const struct exchange &x,
                                        const struct edge_rows &e)
{
    const struct epx_device_comm &c = n.rows.comm;
    const struct epx_edge_list &out = n.destinations;

    for (int32_t i = (int32_t)threadIdx.x; i < 2 * out.num; i += EPX_WAITING_THREADS)
        post_half(c,
                  epx_control_edge(c.control[out.rank[i / 2]], c.num_ranks, (uint32_t)x.epoch,
                                   out.place[i / 2]),
                  i % 2, tag_of(x.epoch), (uint64_t)e.sent[i / 2]);
}

/* Complete after the next barrier of the block. */
static __device__ bool await_edge_counts(const struct epx_neighbor_rows &n,
                                         const struct exchange &x, struct edge_rows &e)
{
    const struct epx_device_comm &c = n.rows.comm;
    bool ok = x.outcome.code == EPX_SUCCESS;

    EPX_DELAY(c);
    for (int32_t i = (int32_t)threadIdx.x; ok && i < n.sources.num; i += EPX_WAITING_THREADS)
        ok = await_number_of(n.rows, x, n.sources.rank[i],
                             epx_control_edge(c.own_control, c.num_ranks, (uint32_t)x.epoch, i),
                             &e.came[i]);
    return ok;
}

/* One warp, once it is known where rows go: from now on e.packets lists the packets from the
 * sources. */
static __device__ void list_edge_packets(const struct epx_neighbor_rows &n, struct edge_rows &e)
{
    const struct epx_alltoallv_rows &a = n.rows;
    int32_t edges = n.sources.num, num = 0;

    for (int32_t first = 0; first < edges; first += EPX_WARP) {
        int32_t i = first + lane_id(), at = i < edges ? i : 0;
        int64_t count = i < edges && e.takes ? e.came[at] : 0;
        int64_t bytes = is_packed(a, count) ? count * a.row_bytes : 0;

        num = list_packets(
            e.packets, i, lanes_from(edges, first), num,
            {a.recv + (bytes ? e.came_place[at] * a.row_bytes : 0),
             packets_of_edge(n, n.sources, at, a.comm.own_control, n.sources.rank[at]), bytes});
    }
}

/* One warp, once the ranks were found to agree: finds the most that any rank stores. */
static __device__ void find_most_stored(const struct epx_device_comm &c, const struct exchange &x,
                                        struct edge_rows &e)
{
    for (int32_t r = lane_id(); r < c.num_ranks; r += EPX_WARP) {
        atomicMax(&e.most_units, ready_word(x, r, EPX_READY_EDGE_STORED) - EPX_READY_NONE_STORED);
        if (!is_direct(x, r))
            e.any_staged = 1;
    }
}

/* A source's part of a stage. */
static __device__ __forceinline__ int64_t edge_share(const struct epx_neighbor_rows &n)
{
    return n.rows.stage_bytes / n.most_sources / 16 * 16;
}

/* The last block: tells the sources that store where their rows go, 0 = nowhere. */
static __device__ void post_grants(const struct epx_neighbor_rows &n, const struct exchange &x,
                                   const struct edge_rows &e)
{
    const struct epx_device_comm &c = n.rows.comm;
    const struct epx_edge_list &in = n.sources;

    for (int32_t i = (int32_t)threadIdx.x; i < 2 * in.num; i += EPX_WAITING_THREADS) {
        int32_t edge = i / 2, rank = in.rank[edge];

        if (!is_packed(n.rows, e.came[edge]) && !is_odd(n, x, rank))
            post_half(
                c,
                epx_control_grant(c.control[rank], c.num_ranks, (uint32_t)x.epoch, in.place[edge]),
                i % 2, tag_of(x.epoch), e.takes ? (uint64_t)e.came_place[edge] + 1 : 0);
    }
}

/* All blocks: wait for the answers of the destinations that rows are stored for. */
static __device__ bool await_grants(const struct epx_neighbor_rows &n, struct exchange &x,
                                    struct edge_rows &e)
{
    const struct epx_device_comm &c = n.rows.comm;
    bool ok = true;

    EPX_DELAY(c);
    for (int32_t i = (int32_t)threadIdx.x; ok && i < n.destinations.num; i += EPX_WAITING_THREADS) {
        int32_t rank = n.destinations.rank[i];
        int64_t place = 0;

        if (!is_packed(n.rows, e.sent[i]) && !is_odd(n, x, rank))
            ok = await_number_of(
                n.rows, x, rank,
                epx_control_grant(c.own_control, c.num_ranks, (uint32_t)x.epoch, i), &place);
        e.granted[i] = place - 1;
    }
    return all_content(c, x, ok);
}

/* Along an edge: straight to its place all in the first round, into a stage a share each round. */
static __device__ struct copy copy_along(const struct epx_neighbor_rows &n,
                                         const struct exchange &x, const struct edge_rows &e,
                                         int32_t i, int64_t round)
{
    const struct epx_alltoallv_rows &a = n.rows;
    int32_t rank = n.destinations.rank[i];
    int64_t bytes = e.sent[i] * a.row_bytes, share = edge_share(n);
    int64_t segment = (int32_t)ready_word(x, rank, EPX_READY_SEGMENT);
    struct copy copy = {a.rows + e.sent_from[i] * a.row_bytes, NULL, 0};

    if (e.granted[i] < 0)
        return copy;
    if (rank == a.comm.rank) {
        copy.to = a.recv;
    } else if (is_direct(x, rank)) {
        copy.to = a.comm.segments[segment * a.comm.num_ranks + rank] +
                  ready_long(x, rank, EPX_READY_OFFSET_LOW);
    } else {
        copy.from += round * share;
        copy.to = a.stage[rank] + n.destinations.place[i] * share;
        copy.bytes = bytes_in_round(bytes, share, round * share);
        return copy;
    }
    copy.to += e.granted[i] * a.row_bytes;
    copy.bytes = round == 0 ? bytes : 0;
    return copy;
}

/* What came along an edge into this rank's stage. */
static __device__ struct copy copy_of_edge(const struct epx_neighbor_rows &n,
                                           const struct edge_rows &e, int32_t i, int64_t round)
{
    const struct epx_alltoallv_rows &a = n.rows;
    int64_t share = edge_share(n), at = round * share;
    struct copy copy = {a.stage[a.comm.rank] + i * share, NULL, 0};

    if (is_packed(a, e.came[i]) || n.sources.rank[i] == a.comm.rank)
        return copy;
    copy.to = a.recv + e.came_place[i] * a.row_bytes + at;
    copy.bytes = bytes_in_round(e.came[i] * a.row_bytes, share, at);
    return copy;
}

/* Rows that go through stages need as many rounds as the most bytes of an edge have shares. */
static __device__ int64_t rounds_of_edges(const struct epx_neighbor_rows &n,
                                          const struct edge_rows &e)
{
    int64_t share = edge_share(n), most = (int64_t)e.most_units * EPX_STORED_UNIT;

    return e.any_staged ? (most + share - 1) / share : 1;
}

static __device__ EPX_COLD int64_t store_along_edges(const struct epx_neighbor_rows &n,
                                                     struct exchange &x, struct edge_rows &e)
{
    const struct epx_alltoallv_rows &a = n.rows;
    const int64_t rounds = rounds_of_edges(n, e);
    const bool takes = !is_direct(x, a.comm.rank) && e.takes;
    struct claimed claimed = {&a.comm.state->runs, 0};

    if (blockIdx.x == gridDim.x - 1)
        post_grants(n, x, e);
    if (!await_grants(n, x, e))
        return rounds;
    store_in_rounds(
        a, x, rounds,
        [&](int64_t round) {
            for (int32_t i = (int32_t)threadIdx.x; i < n.destinations.num; i += EPX_WAITING_THREADS)
                e.copy[i] = copy_along(n, x, e, i, round);
            copy_all(a.comm, e.copy, n.destinations.num, e.turns, claimed);
        },
        [&](int64_t round) {
            for (int32_t i = (int32_t)threadIdx.x; takes && i < n.sources.num;
                 i += EPX_WAITING_THREADS)
                e.copy[i] = copy_of_edge(n, e, i, round);
            if (takes)
                copy_all(a.comm, e.copy, n.sources.num, e.turns, claimed);
        });
    return rounds;
}

/* The whole block, once the ranks were found to agree; returns the rounds. */
static __device__ int64_t exchange_along_edges(const struct epx_neighbor_rows &n,
                                               struct exchange &x, struct edge_rows &e)
{
    const struct epx_device_comm &c = n.rows.comm;

    if (is_warp(0)) {
        settle_edges(n, x, e, is_middle_block());
        list_edge_packets(n, e);
    } else if (is_warp(1)) {
        find_most_stored(c, x, e);
    } else if (is_middle_block() && threadIdx.x == EPX_WAITING_THREADS - 1) {
        count_edge_rows(n, e);
    }
    __syncthreads();
    if (!all_content(c, x,
                     take_packets(c, e.packets, edge_sources{n.sources.num, n.sources}, x.epoch,
                                  bank_of(n.rows, x), team_of(0, NUM_WARPS))))
        return 0;
    return e.most_units ? store_along_edges(n, x, e) : 0;
}

static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    neighbor_rows(const __grid_constant__ struct epx_neighbor_rows n)
{
    const struct epx_device_comm &c = n.rows.comm;
    __shared__ struct exchange x;
    __shared__ struct edge_rows e;
    int64_t rounds = 0;
    bool counted, failed;

    await_kernel_before();
    if (is_warp(1))
        plan_and_note(n, e);
    begin_exchange(c, e.note, 0, look_first(c), x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (blockIdx.x == gridDim.x - 1)
            post_edge_counts(n, x, e);
        send_packets(e.packets, n.destinations.num, x.epoch, bank_of(n.rows, x),
                     team_of(0, NUM_WARPS));
    }
    counted = await_edge_counts(n, x, e);
    if (await_ready(c, e.note, x, NULL, counted))
        rounds = exchange_along_edges(n, x, e);
    if (!is_last_block(c, &x, failed) || threadIdx.x)
        return;
    note_failure(c, x, failed);
    c.state->runs = 0;
    end_exchange(c, x, (uint64_t)rounds, rounds ? (uint64_t)rounds - 1 : 0,
                 x.outcome.code == EPX_SUCCESS ? e.total : 0,
                 x.outcome.code == EPX_SUCCESS ? outcome_of_edges(n, x, e) : x.outcome);
}

int epx_launch_neighbor_rows(const struct epx_neighbor_rows *args, EPX_Stream stream)
{
    return launch_behind({(unsigned)args->rows.comm.blocks, EPX_WAITING_THREADS, 0, stream},
                         neighbor_rows, *args);
}

static const struct epx_loaded loaded(neighbor_rows);

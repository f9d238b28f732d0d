/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * neighbor_messages.cu - an exact exchange of rows along the edges of a graph by messages: a rank
 * tells its destinations counts, and these answer whether they take the rows, because they alone
 * know all that come. Then the rows go from buffer to buffer, in an exchange for the first edge
 * between any two ranks, one for the second, and so on: two ranks have one message in an exchange.
 * The kernel moves no row itself, it posts the exchanges. Ranks without an edge exchange nothing,
 * not even ready words, so one may be operations ahead of the other; but where kernels make the
 * copies of exchanges all ranks take part in each.
 *
 * A rank that learns that a neighbour calls another operation, or is on another graph, goes on with
 * the other neighbours: all ranks make as many exchanges as their graph has, whatever happens.
 * Work: the edges of this rank, once for each rank. Order: none. Launch: one block, which waits for
 * other ranks, and those that help it with the copies of the exchanges; ends the operation.
 */
#include "kernels/alltoallv/edge_counts.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

enum { EDGE_THREADS = 1024 };

static_assert((int)EPX_MOST_DEVICE_RANKS <= (int)EPX_MOST_EDGES, "a word for each rank has room");

/* Numbers to and from other ranks, in two banks: counts, those of edges to one rank one behind the
 * other; then a word for each rank. */
enum { COUNT_BANK, ANSWER_BANK };

static __device__ __forceinline__ int64_t *numbers_out(const struct epx_device_comm &c,
                                                       uint32_t bank)
{
    return (int64_t *)epx_control_grant(c.own_control, c.num_ranks, bank, 0);
}

static __device__ __forceinline__ int64_t *numbers_in(const struct epx_device_comm &c,
                                                      uint32_t bank)
{
    return (int64_t *)epx_control_edge(c.own_control, c.num_ranks, bank, 0);
}

/* The edges of a list that have a rank at the other end: how many stand before them if the list is
 * sorted by rank, and how many they are. */
struct edge_span {
    int32_t first, num;
};

static __device__ struct edge_span span_of(const struct epx_edge_list &list, int32_t rank)
{
    struct edge_span span = {0, 0};

    for (int32_t i = 0; i < list.num; i++) {
        span.first += list.rank[i] < rank;
        span.num += list.rank[i] == rank;
    }
    return span;
}

static __device__ bool has_edge(const struct epx_neighbor_rows &n, int32_t rank)
{
    return span_of(n.destinations, rank).num || span_of(n.sources, rank).num;
}

/* Edges, and the first rank that is apart; INT32_MAX = none. */
struct told_edges : edge_counts {
    int32_t apart;
};

/* Whether a rank calls another operation than this one, or is on another graph: it exchanges
 * nothing more with this rank, and both know it. */
static __device__ __forceinline__ bool is_apart(const struct epx_neighbor_rows &n,
                                                const struct exchange &x, int32_t rank)
{
    return ready_word(x, rank, EPX_READY_VERB) != n.rows.note.word[EPX_READY_VERB];
}

/* The whole block: the ready words of all ranks that have an edge with this one. A rank that is
 * apart counts as one with rows of another length. */
static __device__ bool exchange_edge_words(const struct epx_neighbor_rows &n, struct exchange &x,
                                           struct told_edges &e)
{
    const struct epx_device_comm &c = n.rows.comm;

    if (!exchange_words(c, n.rows.note, EPX_SUCCESS, x,
                        [&](int32_t r) { return has_edge(n, r); }) ||
        !all_content(c, x, collect_ready(c, n.rows.note, x)))
        return false;
    for (int32_t r = (int32_t)threadIdx.x; r < c.num_ranks; r += EDGE_THREADS) {
        if (!is_apart(n, x, r))
            continue;
        x.ready[r * EPX_READY_WORDS + EPX_READY_EDGE_ROW_LOW] =
            ~n.rows.note.word[EPX_READY_EDGE_ROW_LOW];
        atomicMin(&e.apart, r);
    }
    __syncthreads();
    return true;
}

/* Where an edge stands if the list is sorted by rank. */
static __device__ __forceinline__ int32_t sorted_place(const struct epx_edge_list &list, int32_t i)
{
    return span_of(list, list.rank[i]).first + list.turn[i];
}

/* The edge with a rank before which it stands in the list so many times; -1 = none. */
static __device__ int32_t edge_of_turn(const struct epx_edge_list &list, int32_t rank, int32_t turn)
{
    for (int32_t i = 0; i < list.num; i++)
        if (list.rank[i] == rank && list.turn[i] == turn)
            return i;
    return -1;
}

/* The whole block: this rank's counts go to its destinations, and those of its sources come. */
static __device__ bool exchange_edge_counts(const struct epx_neighbor_rows &n, struct exchange &x,
                                            struct told_edges &e)
{
    const struct epx_device_comm &c = n.rows.comm;
    const int64_t word = sizeof(int64_t);

    if (threadIdx.x < EPX_WARP)
        read_edge_counts(n, e);
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < n.destinations.num; i += EDGE_THREADS)
        numbers_out(c, COUNT_BANK)[sorted_place(n.destinations, i)] = e.sent[i];
    post_exchange(
        c, (char *)numbers_out(c, COUNT_BANK), (char *)numbers_in(c, COUNT_BANK), [&](int32_t r) {
            struct edge_span out = span_of(n.destinations, r), in = span_of(n.sources, r);
            int64_t each = is_apart(n, x, r) ? 0 : word;

            return epx_message{out.first * word, out.num * each, in.first * word, in.num * each};
        });
    if (!await_exchange(c, x))
        return false;
    for (int32_t i = (int32_t)threadIdx.x; i < n.sources.num; i += EDGE_THREADS)
        e.came[i] = is_apart(n, x, n.sources.rank[i])
                        ? 0
                        : numbers_in(c, COUNT_BANK)[sorted_place(n.sources, i)];
    __syncthreads();
    return true;
}

/* The whole block: each rank answers its sources whether it takes their rows. */
static __device__ bool exchange_answers(const struct epx_neighbor_rows &n, struct exchange &x,
                                        struct told_edges &e)
{
    const struct epx_device_comm &c = n.rows.comm;
    const int64_t word = sizeof(int64_t);

    if (threadIdx.x < EPX_WARP)
        settle_edges(n, x, e, true);
    __syncthreads();
    for (int32_t r = (int32_t)threadIdx.x; r < c.num_ranks; r += EDGE_THREADS)
        numbers_out(c, ANSWER_BANK)[r] = e.takes && !is_odd(n, x, r);
    post_exchange(c, (char *)numbers_out(c, ANSWER_BANK), (char *)numbers_in(c, ANSWER_BANK),
                  [&](int32_t r) {
                      int64_t each = is_apart(n, x, r) ? 0 : word;
                      int64_t told = span_of(n.sources, r).num ? each : 0;
                      int64_t comes = span_of(n.destinations, r).num ? each : 0;

                      return epx_message{r * word, told, r * word, comes};
                  });
    return await_exchange(c, x);
}

/* The message to and from a rank along the edges of a turn. */
static __device__ struct epx_message rows_of_turn(const struct epx_neighbor_rows &n,
                                                  const struct exchange &x,
                                                  const struct told_edges &e, int32_t r,
                                                  int32_t turn)
{
    const int64_t row_bytes = n.rows.row_bytes;
    int32_t out = edge_of_turn(n.destinations, r, turn), in = edge_of_turn(n.sources, r, turn);
    struct epx_message message = {0, 0, 0, 0};

    if (out >= 0 && e.sent[out] && !is_apart(n, x, r) && numbers_in(n.rows.comm, ANSWER_BANK)[r]) {
        message.send_at = e.sent_from[out] * row_bytes;
        message.send_bytes = e.sent[out] * row_bytes;
    }
    if (in >= 0 && e.came[in] && e.takes && !is_odd(n, x, r)) {
        message.recv_at = e.came_place[in] * row_bytes;
        message.recv_bytes = e.came[in] * row_bytes;
    }
    return message;
}

/* The first block: exchanges counts and answers, then rows. */
static __device__ bool exchange_edges(const struct epx_neighbor_rows &n, struct exchange &x,
                                      struct told_edges &e)
{
    const struct epx_device_comm &c = n.rows.comm;

    if (threadIdx.x == 0)
        e.apart = INT32_MAX;
    if (!(c.copies ? exchange_ready(c, n.rows.note, NULL, x) : exchange_edge_words(n, x, e)) ||
        !exchange_edge_counts(n, x, e) || !exchange_answers(n, x, e))
        return false;
    for (int32_t turn = 0; turn < n.most_turns; turn++) {
        post_exchange(c, (char *)(uintptr_t)n.rows.rows, n.rows.recv,
                      [&](int32_t r) { return rows_of_turn(n, x, e, r, turn); });
        if (!await_exchange(c, x))
            return false;
    }
    return true;
}

/* How exchanges ended that came to their end. */
static __device__ struct epx_outcome outcome_of_exchanges(const struct epx_neighbor_rows &n,
                                                          const struct exchange &x,
                                                          const struct told_edges &e)
{
    if (e.apart == INT32_MAX)
        return outcome_of_edges(n, x, e);
    return {EPX_ERR_ARG,
            EPX_OUTCOME_DIFFERS,
            e.apart,
            n.rows.comm.rank,
            EPX_READY_VERB,
            (int32_t)n.rows.note.word[EPX_READY_VERB],
            (int32_t)ready_word(x, e.apart, EPX_READY_VERB)};
}

/* One thread of the first block: leaves to the last block how the exchanges ended. */
static __device__ void leave_edges(const struct epx_neighbor_rows &n, struct exchange &x,
                                   const struct told_edges &e, bool exchanged)
{
    const struct epx_device_comm &c = n.rows.comm;

    c.state->rows = exchanged ? e.total : 0;
    if (exchanged) {
        count_edge_rows(n, e);
        x.outcome = outcome_of_exchanges(n, x, e);
    }
    hand_over(c, x, 0, false, NULL);
}

static __global__ void __launch_bounds__(EDGE_THREADS)
    neighbor_messages(const __grid_constant__ struct epx_neighbor_rows n)
{
    const struct epx_device_comm &c = n.rows.comm;
    __shared__ struct exchange x;
    __shared__ struct told_edges e;

    if (blockIdx.x) {
        copy_until_end(c);
    } else {
        bool exchanged = exchange_edges(n, x, e);

        if (threadIdx.x == 0)
            leave_edges(n, x, e, exchanged);
    }
    if (is_last_block(c) && threadIdx.x == 0)
        end_operation(c, c.state->rows);
}

int epx_launch_neighbor_messages(const struct epx_neighbor_rows *args, EPX_Stream stream)
{
    neighbor_messages<<<epx_blocks_for_messages(args->rows.comm), EDGE_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(neighbor_messages);

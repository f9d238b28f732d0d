/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alltoallv_rows.cu - an exact exchange of rows: every rank tells all ranks all of its counts,
 * so that each works out for itself where its rows go and who lacks room. Few rows for another
 * rank go with the counts, in packets. Many rows are stored once the counts are known: straight to
 * their places, or in rounds through the stage of a rank whose receive buffer is in no window.
 * Work: reads and writes the rows that are sent. Order: none, every byte has one writer.
 * Launch: comm.blocks blocks, which wait for other ranks; ends the operation.
 */
#include "kernels/alltoallv/row_steps.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"

/* What every block works out for itself; in shared memory. */
struct placement {
    char *control[EPX_MOST_DEVICE_RANKS];
    int64_t send_count[EPX_MOST_DEVICE_RANKS];
    int64_t send_from[EPX_MOST_DEVICE_RANKS]; /* own displacements */
    int64_t place[EPX_MOST_DEVICE_RANKS];     /* where this rank's rows start on each rank */
    int64_t recv_count[EPX_MOST_DEVICE_RANKS];
    int64_t recv_place[EPX_MOST_DEVICE_RANKS];
    int64_t total[EPX_MOST_DEVICE_RANKS]; /* rows for each rank */
    unsigned long long most_staged_bytes; /* most of one rank for one that is staged */
    int32_t any_stored;         /* whether any rank has more rows for a rank than go packed */
    int32_t bad;                /* the first rank with an invalid count; -1 = none */
    struct packet_list packets; /* to the other ranks, then from them */
    struct copy copy[EPX_MOST_DEVICE_RANKS]; /* of a round: to, then from, all ranks; before,
                                                own rows if they are few */
    struct turns turns[2];                   /* of a round, for each team */
};

/* What teams have claimed. */
struct claims {
    struct claimed moved; /* by those that send to others, then by those that take */
    struct claimed kept;  /* by those that copy own rows */
};

/* One warp, before anything else: looks up where the ranks' control windows are. */
static __device__ void look_up_windows(const struct epx_device_comm &c, struct placement &p)
{
    for (int32_t r = lane_id(); r < c.num_ranks; r += EPX_WARP)
        p.control[r] = c.control[r];
}

/* One warp, before anything is known of the other ranks: lists this rank's packets for the others.
 * One invalid count makes all counts 0. */
static __device__ void plan_sends(const struct epx_alltoallv_rows &a, struct placement &p)
{
    int32_t ranks = a.comm.num_ranks, num = 0;
    int32_t bad = read_counts(a, ranks, p.send_count, p.send_from);

    if (lane_id() == 0) {
        p.any_stored = 0;
        p.most_staged_bytes = 0;
        p.bad = bad;
        p.packets.first[0] = 0;
    }
    for (int32_t first = 0; first < ranks; first += EPX_WARP) {
        int32_t r = first + lane_id(), at = r < ranks ? r : 0;
        int64_t count = r < ranks && bad < 0 ? p.send_count[at] : 0;
        int64_t bytes = r != a.comm.rank && is_packed(a, count) ? count * a.row_bytes : 0;

        if (r < ranks)
            p.send_count[r] = count;
        num = list_packets(p.packets, r, lanes_from(ranks, first), num,
                           {(char *)(uintptr_t)a.rows + p.send_from[at] * a.row_bytes,
                            epx_control_packets(p.control[at], ranks, a.packet_words, a.comm.rank),
                            bytes});
    }
}

static __device__ void post_row_counts(const struct epx_alltoallv_rows &a, const struct exchange &x,
                                       const struct placement &p)
{
    int32_t num = a.comm.num_ranks;

    for (int32_t i = (int32_t)threadIdx.x; i < num * num * 2; i += (int32_t)blockDim.x) {
        int32_t rank = i / (num * 2), word = i % (num * 2);
        uint64_t *to = epx_control_counts(p.control[rank], num, (uint32_t)x.epoch, a.comm.rank);

        post_half(a.comm, to + word / 2 * 2, word % 2, tag_of(x.epoch),
                  (uint64_t)p.send_count[word / 2]);
    }
}

/* counts is [source][target], in shared memory; complete after the next barrier of the block. */
static __device__ bool await_counts(const struct epx_alltoallv_rows &a, const struct exchange &x,
                                    int64_t *counts)
{
    int32_t num = a.comm.num_ranks;
    bool ok = x.outcome.code == EPX_SUCCESS;

    EPX_DELAY(a.comm);
    for (int32_t i = (int32_t)threadIdx.x; ok && i < num * num;
         i += EPX_WAITING_THREADS) /* the first threads: the last ones wait for ready */
        ok = await_number_of(a, x, i / num,
                             epx_control_counts(a.comm.own_control, num, (uint32_t)x.epoch, 0) +
                                 2 * (int64_t)i,
                             &counts[i]);
    return ok;
}

static __device__ __forceinline__ bool has_room(const struct exchange &x, const struct placement &p,
                                                int32_t rank)
{
    return p.total[rank] <= ready_long(x, rank, EPX_READY_CAPACITY_LOW);
}

/* One warp: where this rank's rows start on each rank. A lane adds up the rows for its rank. */
static __device__ void place_sends(const struct epx_alltoallv_rows &a, const struct exchange &x,
                                   struct placement &p, const int64_t *counts)
{
    int32_t num = a.comm.num_ranks;

    for (int32_t d = lane_id(); d < num; d += EPX_WARP) {
        int64_t rows = 0, most = 0;

        for (int32_t s = 0; s < num; s++) {
            int64_t count = counts[s * num + d];

            if (s == a.comm.rank)
                p.place[d] = rows;
            rows = add_capped(rows, count);
            most = count > most ? count : most;
        }
        p.total[d] = rows;
        if (is_packed(a, most))
            continue;
        p.any_stored = 1;
        if (!is_direct(x, d) && has_room(x, p, d))
            atomicMax(&p.most_staged_bytes, (unsigned long long)(most * a.row_bytes));
    }
    __syncwarp();
}

/* How many rows come here from all ranks. */
static __device__ int64_t rows_received(const struct epx_alltoallv_rows &a, const int64_t *counts)
{
    int64_t rows = 0;

    for (int32_t s = 0; s < a.comm.num_ranks; s++)
        rows = add_capped(rows, counts[s * a.comm.num_ranks + a.comm.rank]);
    return rows;
}

/* One warp: where the rows of each source go here: one source behind the other. From now on
 * p.packets lists the packets from all other ranks, and p.copy this rank's own rows if they are as
 * few. The middle block shows the counts. */
static __device__ void place_receives(const struct epx_alltoallv_rows &a, struct placement &p,
                                      const int64_t *counts)
{
    int32_t ranks = a.comm.num_ranks, me = a.comm.rank, num = 0;
    bool takes = rows_received(a, counts) <= a.recv_capacity, shows = is_middle_block();
    int64_t rows = 0;

    for (int32_t first = 0; first < ranks; first += EPX_WARP) {
        int32_t s = first + lane_id(), at = s < ranks ? s : 0, lanes = lanes_from(ranks, first);
        int64_t count = s < ranks ? counts[s * ranks + me] : 0;
        int64_t through = scan_capped(count, lanes);
        int64_t place = add_capped(rows, before_lane(through));
        int64_t sent = s == me ? p.send_count[me] : count; /* own ones as this block checked them */
        int64_t bytes = takes && is_packed(a, count) ? sent * a.row_bytes : 0;
        char *to = a.recv + (bytes ? place * a.row_bytes : 0);

        if (s < ranks) {
            p.recv_count[s] = count;
            p.recv_place[s] = place;
        }
        if (s < ranks && shows) {
            a.recvcounts[s] = count;
            a.rdispls[s] = place;
        }
        if (s == me)
            p.copy[me] = {a.rows + p.send_from[me] * a.row_bytes, to, bytes};
        num = list_packets(p.packets, s, lanes, num,
                           {to, epx_control_packets(a.comm.own_control, ranks, a.packet_words, at),
                            s == me ? 0 : bytes});
        rows = add_capped(rows, __shfl_sync(~0u, through, lanes - 1));
    }
}

static __device__ int64_t stage_share(const struct epx_alltoallv_rows &a)
{
    return a.stage_bytes / a.comm.num_ranks / 16 * 16;
}

/* To a rank: straight to its buffer all in the first round, into its stage a share each round. */
static __device__ struct copy copy_to(const struct epx_alltoallv_rows &a, const struct exchange &x,
                                      const struct placement &p, int32_t rank, int64_t round)
{
    int64_t rows = p.send_count[rank], segment = (int32_t)ready_word(x, rank, EPX_READY_SEGMENT);
    struct copy copy = {a.rows + p.send_from[rank] * a.row_bytes, NULL, 0};

    if (!has_room(x, p, rank) || is_packed(a, rows))
        return copy;
    if (is_direct(x, rank)) {
        copy.to = a.comm.segments[segment * a.comm.num_ranks + rank] +
                  ready_long(x, rank, EPX_READY_OFFSET_LOW) + p.place[rank] * a.row_bytes;
        copy.bytes = round == 0 ? rows * a.row_bytes : 0;
    } else {
        copy.from += round * stage_share(a);
        copy.to = a.stage[rank] + a.comm.rank * stage_share(a);
        copy.bytes = bytes_in_round(rows * a.row_bytes, stage_share(a), round * stage_share(a));
    }
    return copy;
}

static __device__ struct copy copy_from(const struct epx_alltoallv_rows &a,
                                        const struct placement &p, int32_t rank, int64_t round)
{
    int64_t rows = p.recv_count[rank], at = round * stage_share(a);
    struct copy copy = {a.stage[a.comm.rank] + rank * stage_share(a), NULL, 0};

    if (is_packed(a, rows))
        return copy;
    copy.to = a.recv + p.recv_place[rank] * a.row_bytes + at;
    copy.bytes = bytes_in_round(rows * a.row_bytes, stage_share(a), at);
    return copy;
}

/* How many warps of each block copy the rank's own rows, which no link slows down: as many as is
 * their part of all bytes. */
static __device__ int32_t num_keepers(const struct placement &p, int32_t num_ranks, int32_t rank)
{
    const int32_t warps = NUM_WARPS;
    double own = (double)p.copy[rank].bytes, all = 0;
    int32_t keepers;

    for (int32_t r = 0; r < num_ranks; r++)
        all += (double)p.copy[r].bytes;
    if (own == 0 || own == all)
        return own == 0 ? 0 : warps;
    keepers = (int32_t)(own / all * warps + 0.5);
    return keepers < 1 ? 1 : keepers < warps ? keepers : warps - 1;
}

/* The whole block: stores what a round sends. */
static __device__ void send_round(const struct epx_alltoallv_rows &a, const struct exchange &x,
                                  struct placement &p, int64_t round, struct claims &claims)
{
    int32_t num = a.comm.num_ranks, me = a.comm.rank, thread = (int32_t)threadIdx.x;
    struct turns &others = p.turns[0], &own = p.turns[1];
    int32_t keepers, senders;

    for (int32_t d = thread; d < num; d += EPX_WAITING_THREADS)
        p.copy[d] = copy_to(a, x, p, d, round);
    __syncthreads();
    find_turns(p.copy, num, me + 1, num - 1, thread, others);
    find_turns(p.copy, num, me, 1, EPX_WAITING_THREADS - 1 - thread, own);
    keepers = num_keepers(p, num, me);
    senders = NUM_WARPS - keepers;
    __syncthreads();
    if (thread / EPX_WARP < senders)
        copy_in_turns(a.comm, p.copy, others, team_of(0, senders), claims.moved);
    else
        copy_in_turns(a.comm, p.copy, own, team_of(senders, keepers), claims.kept);
    claims.moved.before += num_pieces(others);
    claims.kept.before += num_pieces(own);
}

/* The whole block, once no thread needs p.copy any more: takes what came into this rank's stage. */
static __device__ void take_round(const struct epx_alltoallv_rows &a, struct placement &p,
                                  int64_t round, struct claims &claims)
{
    int32_t num = a.comm.num_ranks;

    for (int32_t s = (int32_t)threadIdx.x; s < num; s += EPX_WAITING_THREADS)
        p.copy[s] = copy_from(a, p, s, round);
    copy_all(a.comm, p.copy, num, p.turns[0], claims.moved);
}

static __device__ EPX_COLD int64_t move_alltoallv(const struct epx_alltoallv_rows &a,
                                                  struct exchange &x, struct placement &p)
{
    int64_t share = stage_share(a), me = a.comm.rank;
    int64_t rounds = ((int64_t)p.most_staged_bytes + share - 1) / share;
    bool takes = !is_direct(x, (int32_t)me) && has_room(x, p, (int32_t)me);
    struct claims claims = {{&a.comm.state->runs, 0}, {&a.comm.state->taken, 0}};

    rounds = rounds ? rounds : 1;
    store_in_rounds(
        a, x, rounds, [&](int64_t i) { send_round(a, x, p, i, claims); },
        [&](int64_t i) {
            if (takes)
                take_round(a, p, i, claims);
        });
    return rounds;
}

static __device__ __forceinline__ struct epx_outcome
outcome_of(const struct epx_alltoallv_rows &a, const struct exchange &x, const struct placement &p)
{
    const int64_t rows = p.total[a.comm.rank];

    if (x.outcome.code != EPX_SUCCESS)
        return x.outcome;
    return p.bad < 0 && rows <= a.recv_capacity ? epx_outcome() : outcome_of_counts(a, p.bad, rows);
}

/* The whole block: takes the rows that go with the counts, and this rank's own ones if they are as
 * few, by half its warps. */
static __device__ bool take_few(const struct epx_alltoallv_rows &a, const struct exchange &x,
                                const struct placement &p)
{
    const int32_t half = NUM_WARPS / 2;

    if ((int32_t)threadIdx.x / EPX_WARP >= half)
        copy_in_shares(p.copy[a.comm.rank], team_of(half, half));
    return take_packets(a.comm, p.packets, every_rank{a.comm.num_ranks}, x.epoch, bank_of(a, x),
                        team_of(0, NUM_WARPS));
}

/* The whole block, once the ranks were found to agree; returns the rounds. */
static __device__ int64_t exchange_rows(const struct epx_alltoallv_rows &a, struct exchange &x,
                                        struct placement &p, const int64_t *counts)
{
    if (is_warp(0))
        place_sends(a, x, p, counts);
    else if (is_warp(1))
        place_receives(a, p, counts);
    else if (is_middle_block() && threadIdx.x == EPX_WAITING_THREADS - 1)
        count_rows(a.comm, p.send_count, a.row_bytes);
    __syncthreads();
    if (!all_content(a.comm, x, take_few(a, x, p)))
        return 0;
    return p.any_stored ? move_alltoallv(a, x, p) : 0;
}

static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    alltoallv_rows(const __grid_constant__ struct epx_alltoallv_rows a)
{
    extern __shared__ int64_t counts[];
    __shared__ struct exchange x;
    __shared__ struct placement p;
    int64_t rounds = 0;
    bool counted, failed;

    if (is_warp(1))
        look_up_windows(a.comm, p);
    await_kernel_before();
    if (is_warp(1))
        plan_sends(a, p);
    begin_exchange(a.comm, a.note, 0, look_first(a.comm), x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (blockIdx.x == gridDim.x - 1)
            post_row_counts(a, x, p);
        send_packets(p.packets, a.comm.num_ranks, x.epoch, bank_of(a, x), team_of(0, NUM_WARPS));
    }
    counted = await_counts(a, x, counts);
    if (await_ready(a.comm, a.note, x, NULL, counted))
        rounds = exchange_rows(a, x, p, counts);
    if (!is_last_block(a.comm, &x, failed) || threadIdx.x)
        return;
    note_failure(a.comm, x, failed);
    a.comm.state->taken = a.comm.state->runs = 0;
    end_exchange(a.comm, x, (uint64_t)rounds, rounds ? (uint64_t)rounds - 1 : 0,
                 x.outcome.code == EPX_SUCCESS ? p.total[a.comm.rank] : 0, outcome_of(a, x, p));
}

int epx_launch_alltoallv_rows(const struct epx_alltoallv_rows *args, EPX_Stream stream)
{
    size_t ranks = (size_t)args->comm.num_ranks, bytes = ranks * ranks * sizeof(int64_t);

    return launch_behind(
        {(unsigned)args->comm.blocks, EPX_WAITING_THREADS, (unsigned)bytes, stream}, alltoallv_rows,
        *args);
}

static const struct epx_loaded
loaded(alltoallv_rows, EPX_MOST_DEVICE_RANKS *EPX_MOST_DEVICE_RANKS *(int)sizeof(int64_t));

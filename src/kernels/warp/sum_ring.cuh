/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_ring.cuh - sums of rows, one after the other, whose loads do not pause, if rows lie on
 * multiples of a pack; sums of other rows are added one by one. A warp has a ring of steps in
 * shared memory; a step is what it loads at once of one row, STEP_PACKS packs a lane. While one
 * step is added those behind it are under way, also those of the next sum: it is looked for when a
 * step of each row has been added and the rest of the sum is under way, which is never so if it has
 * more rows than the ring has steps. It is not waited for while there is something to add.
 * A step begins as many bytes behind a line of the cache in the ring as in memory: else L2 would be
 * read twice for each 32 bytes of the row.
 */
#ifndef EPX_KERNELS_WARP_SUM_RING_CUH
#define EPX_KERNELS_WARP_SUM_RING_CUH

#include "kernels/device_plan.h"
#include "kernels/warp/ptx.cuh"
#include "kernels/warp/sum_rows.cuh"

#include <type_traits>

enum {
    STEP_PACKS = 2,
    STEP_LINE = 128, /* of the cache; and the bytes beside its own that a step may take */
    STEP_ROOM = STEP_PACKS * EPX_WARP * 16 + STEP_LINE,
    RING_STEPS = 6,
    RING_ROOM = RING_STEPS * STEP_ROOM,
    OFFSET_UNIT = 8, /* the least pack */
    OFFSET_BITS = 4
};
static_assert(STEP_LINE == OFFSET_UNIT << OFFSET_BITS && RING_STEPS * OFFSET_BITS <= 32,
              "the offsets of all steps fit into a word");

/* What a sum is made of: rows of the rank itself, which are added first and rounded as if they had
 * travelled, and parts of other ranks; in shared memory, two a warp. */
struct summands {
    struct row_list rows; /* own ones, with weights, then parts, with the ranks they come from */
    int32_t num_own, num_parts;
    int32_t own_place;  /* how many parts come before the own one */
    int32_t home, word; /* of a sum that is sent: its rank, and the word that tells of it */
    int64_t token;
    bool begins;                    /* with a row's first slice, beside which weights go */
    struct epx_wire_record *record; /* of a sum that is sent */
    int64_t elements;
    char *out;
};

/* A kernel's way to add: T is a type of an operation. SENDS: the sum of own rows is the result, and
 * travels. */
template <typename T, bool SENDS, bool WEIGHTED> struct sum_kind {
    typedef typename T::row Row;
    typedef typename T::part Part;
    typedef std::conditional_t<SENDS, Part, Row> To;
    static constexpr bool sends = SENDS, weighted = WEIGHTED;
    static constexpr int N = PACKED<Part, Row>; /* elements of a pack */
};

/* The packs of a sum that steps have. */
template <typename K> static __device__ __forceinline__ int32_t packs_of(const struct summands &sum)
{
    return sum.num_own + sum.num_parts ? (int32_t)(sum.elements / K::N) : 0;
}

/*
 * Where a warp is in its ring and in the sums that it knows. Its copies ahead are groups, one a
 * step; in place of a step that is missing, because there is nothing to load, is a group of none.
 * So behind that of the j-th step, 0 the oldest, at least RING_STEPS - 1 - j groups have ended.
 */
struct stream {
    char *ring;
    int32_t oldest;           /* where in the ring; its room is the next step's once it is taken */
    uint32_t offsets;         /* by which steps lie behind a line; the oldest one's is lowest */
    int32_t under_way;        /* steps */
    int32_t known;            /* sums that have been found and not been added */
    int32_t loading;          /* which of the warp's two sums is loaded */
    int32_t own, rows, packs; /* of this sum */
    int32_t row, pack;        /* of the step that is loaded next */
    const char *next;         /* the row of that step */
};

/* What a warp adds now. */
struct adding {
    int32_t number; /* of the warp's two sums */
    int32_t own, parts, own_place, packs;
    int32_t pack; /* the first of the steps that are added next */
    char *out;
};

/* Where in the ring a step lies that is so many behind another one. */
static __device__ __forceinline__ int32_t step_behind(int32_t step, int32_t steps)
{
    const int32_t at = step + steps * STEP_ROOM;

    return at < RING_ROOM ? at : at - RING_ROOM;
}

/* The whole warp: goes on with the next row of the sum that is loaded, or with the next steps. */
static __device__ __forceinline__ void go_on_loading(struct stream &s, const struct summands *sums)
{
    if (++s.row == s.rows) {
        s.row = 0;
        s.pack += STEP_PACKS * EPX_WARP;
    }
    s.next = sums[s.loading].rows.row[s.row];
}

/* The whole warp: begins to load a step of a row. Lanes that would load what is behind the last
 * pack load this pack. */
template <typename Pack>
static __device__ __forceinline__ void load_packs(const struct stream &s, char *step)
{
    const struct bounded_packs at = {s.pack + lane_id(), s.packs - 1};
    Pack *to = (Pack *)(void *)step + lane_id();

#pragma unroll
    for (int u = 0; u < STEP_PACKS; u++)
        copy_ahead<(int)sizeof(Pack)>(to + u * EPX_WARP,
                                      (const Pack *)(const void *)s.next + at.number(u));
}

/* The whole warp: begins to load the next step of a sum to where in the ring it lies, so many steps
 * behind the oldest one. */
template <typename K>
static __device__ __forceinline__ void load_step(struct stream &s, const struct summands *sums,
                                                 int32_t at, int32_t behind)
{
    const uint32_t offset = (uint32_t)(uintptr_t)s.next & (STEP_LINE - 1);

    s.offsets |= offset / OFFSET_UNIT << behind * OFFSET_BITS;
    if (sizeof(typename K::Row) == sizeof(typename K::Part) || s.row < s.own)
        load_packs<pack<typename K::Row, K::N>>(s, s.ring + at + offset);
    else
        load_packs<pack<typename K::Part, K::N>>(s, s.ring + at + offset);
    go_on_loading(s, sums);
}

/* The whole warp: goes on to load a sum that has been found. */
template <typename K>
static __device__ __forceinline__ void begin_to_load(struct stream &s, const struct summands *sums)
{
    s.loading ^= 1;
    s.known++;
    s.row = s.pack = 0;
    s.own = sums[s.loading].num_own;
    s.rows = s.own + sums[s.loading].num_parts;
    s.packs = packs_of<K>(sums[s.loading]);
    s.next = sums[s.loading].rows.row[0];
}

/* The whole warp: fills the ring, with groups of none behind what there is; waits for the next sum
 * if it knows none. */
template <typename K, typename Source>
static __device__ __forceinline__ void fill_ring(struct stream &s, Source &source,
                                                 struct summands *sums)
{
#pragma unroll 1
    for (;;) {
#pragma unroll 1
        while (s.under_way < RING_STEPS && s.pack < s.packs) {
            load_step<K>(s, sums, step_behind(s.oldest, s.under_way), s.under_way);
            end_copies_ahead();
            s.under_way++;
        }
        if (s.pack < s.packs || s.known == 2 || !source.find(sums[s.loading ^ 1], s.known == 0))
            break;
        begin_to_load<K>(s, sums);
    }
#pragma unroll 1
    for (int32_t i = s.under_way; i < RING_STEPS; i++)
        end_copies_ahead();
}

/* A lane's packs of a step, or of a sum. */
template <typename Element, int N> struct lane_packs {
    pack<Element, N> at[STEP_PACKS];
};

/* The whole warp: a lane's packs of the oldest step; the next one to load takes its place. */
template <typename K, typename Element>
static __device__ __forceinline__ struct lane_packs<Element, K::N>
take_step(struct stream &s, const struct summands *sums) {
    const char *step = s.ring + s.oldest + s.offsets % (1u << OFFSET_BITS) * OFFSET_UNIT;
    const pack<Element, K::N> *from = (const pack<Element, K::N> *)(const void *)step + lane_id();
    struct lane_packs<Element, K::N> taken;

    await_copies_ahead<RING_STEPS - 1>();
#pragma unroll
    for (int u = 0; u < STEP_PACKS; u++)
        taken.at[u] = from[u * EPX_WARP];
    __syncwarp(); /* the row that takes its place may lie elsewhere in a line */
    s.offsets >>= OFFSET_BITS;
    if (s.pack < s.packs)
        load_step<K>(s, sums, s.oldest, RING_STEPS - 1);
    else
        s.under_way--;
    end_copies_ahead();
    s.oldest = step_behind(s.oldest, 1);
    return taken;
}

template <bool WEIGHTED, typename Element, int N>
static __device__ __forceinline__ void add_lane_packs(const struct lane_packs<Element, N> &packs,
                                                      float weight, bool starts,
                                                      typename Element::sum total[STEP_PACKS][N])
{
#pragma unroll
    for (int u = 0; u < STEP_PACKS; u++)
        add_pack<Element, N, WEIGHTED>(packs.at[u], weight, starts, total[u]);
}

template <typename To, int N>
static __device__ __forceinline__ struct lane_packs<To, N>
round_lane_packs(const typename To::sum total[STEP_PACKS][N])
{
    struct lane_packs<To, N> rounded;

#pragma unroll
    for (int u = 0; u < STEP_PACKS; u++)
        round_pack(total[u], rounded.at[u]);
    return rounded;
}

/* The sum of two packs, rounded. */
template <typename T, int N>
static __device__ __forceinline__ pack<T, N> sum_of_packs(const pack<T, N> &a, const pack<T, N> &b)
{
    pack<T, N> rounded;

    if constexpr (EPX_TWO_HALVES && sizeof(T) == 2 && N % 2 == 0) {
        uint32_t two[N / 2], other[N / 2];

        memcpy(two, &a, sizeof(two));
        memcpy(other, &b, sizeof(other));
#pragma unroll
        for (int n = 0; n < N / 2; n++)
            two[n] = T::add_two(two[n], other[n]);
        memcpy(&rounded, two, sizeof(two));
    } else {
        typename T::sum total[N];

        add_pack<T, N, false>(a, 1, true, total);
        add_pack<T, N, false>(b, 1, false, total);
        round_pack(total, rounded);
    }
    return rounded;
}

/* Whether one row is its own sum, and two are added as they are. */
template <typename K>
static constexpr bool ADDS_AS_STORED = std::is_same_v<typename K::Row, typename K::Part>;

/* The whole warp: the sum of the rank's own rows, of the next steps. */
template <typename K>
static __device__ __forceinline__ struct lane_packs<typename K::Part, K::N>
sum_own(struct stream &s, const struct adding &now, const struct summands *sums) {
    typedef typename K::Row Row;
    const struct row_list &rows = sums[now.number].rows;
    typename Row::sum total[STEP_PACKS][K::N];

    if constexpr (ADDS_AS_STORED<K> && !K::weighted)
        if (now.own == 1)
            return take_step<K, Row>(s, sums);
    add_lane_packs<K::weighted>(take_step<K, Row>(s, sums), K::weighted ? rows.weight[0] : 1, true,
                                total);
#pragma unroll 1
    for (int32_t r = 1; r < now.own; r++)
        add_lane_packs<K::weighted>(take_step<K, Row>(s, sums), K::weighted ? rows.weight[r] : 1,
                                    false, total);
    return round_lane_packs<typename K::Part, K::N>(total);
}

/* The whole warp: the sum of parts, of the next steps, and between them the own one, if any. */
template <typename K>
static __device__ __forceinline__ struct lane_packs<typename K::Row, K::N>
sum_parts(struct stream &s, const struct adding &now, const struct summands *sums,
          const struct lane_packs<typename K::Part, K::N> &own) {
    typedef typename K::Part Part;
    const int32_t own_place = now.own ? now.own_place : -1;
    typename Part::sum total[STEP_PACKS][K::N];

    if constexpr (ADDS_AS_STORED<K>)
        if (now.own && now.parts == 1) {
            struct lane_packs<Part, K::N> sum = take_step<K, Part>(s, sums);

#pragma unroll
            for (int u = 0; u < STEP_PACKS; u++)
                sum.at[u] = sum_of_packs(own.at[u], sum.at[u]);
            return sum;
        }
    if (own_place == 0)
        add_lane_packs<false>(own, 1, true, total);
    else
        add_lane_packs<false>(take_step<K, Part>(s, sums), 1, true, total);
#pragma unroll 1
    for (int32_t p = own_place != 0; p < now.parts; p++) {
        if (p && p == own_place)
            add_lane_packs<false>(own, 1, false, total);
        add_lane_packs<false>(take_step<K, Part>(s, sums), 1, false, total);
    }
    if (own_place > 0 && own_place == now.parts)
        add_lane_packs<false>(own, 1, false, total);
    return round_lane_packs<typename K::Row, K::N>(total);
}

/* A lane stores its packs; those behind the last one stand for it, with the same bytes. */
template <typename K>
static __device__ __forceinline__ void
store_lane_packs(const struct adding &now, const struct lane_packs<typename K::To, K::N> &packs)
{
    const struct bounded_packs at = {now.pack + lane_id(), now.packs - 1};

#pragma unroll
    for (int u = 0; u < STEP_PACKS; u++)
        at.store<typename K::To, STEP_PACKS>(now.out, packs.at[u], u);
}

/* The whole warp: adds the next steps of all rows of a sum. */
template <typename K>
static __device__ __forceinline__ void add_steps(struct stream &s, const struct adding &now,
                                                 const struct summands *sums)
{
    struct lane_packs<typename K::Part, K::N> own;

    if (now.own)
        own = sum_own<K>(s, now, sums);
    if constexpr (K::sends)
        store_lane_packs<K>(now, own);
    else
        store_lane_packs<K>(now, sum_parts<K>(s, now, sums, own));
}

/* The whole warp: nothing to add gives zeros. */
template <typename K> static __device__ void zero_empty_sum(const struct summands &sum)
{
    if (sum.num_own + sum.num_parts == 0 && !K::sends)
        zero_row(sum.out, sum.elements * (int64_t)sizeof(typename K::To));
}

template <typename K>
static __device__ __forceinline__ void begin_to_add(struct adding &now, const struct summands *sums)
{
    const struct summands &sum = sums[now.number];

    now = {now.number, sum.num_own, sum.num_parts, sum.own_place, packs_of<K>(sum), 0, sum.out};
}

/*
 * The whole warp: adds what source.find(sum, waits) lists, until that returns false though it may
 * wait, and calls source.end(sum) behind each sum.
 */
template <typename K, typename Source>
static __device__ __forceinline__ void stream_sums(Source &source, char *ring,
                                                   struct summands *sums)
{
    struct stream s = {ring, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, NULL};
    struct adding now = {0, 0, 0, 0, 0, 0, NULL};
    bool begins = true;

#pragma unroll 1
    for (;;) {
        if (s.pack >= s.packs)
            fill_ring<K>(s, source, sums);
        if (s.known == 0)
            return;
        if (begins)
            begin_to_add<K>(now, sums);
        if (now.packs)
            add_steps<K>(s, now, sums);
        now.pack += STEP_PACKS * EPX_WARP;
        begins = now.pack >= now.packs;
        if (!begins)
            continue;
        zero_empty_sum<K>(sums[now.number]);
        source.end(sums[now.number]);
        now.number ^= 1;
        s.known--;
    }
}

/* Adds a lane's packs, of N elements, of a sum of rows that lie anywhere. */
template <typename K, int N, int UNROLL, typename Packs>
static __device__ __forceinline__ void add_odd_packs(const struct summands &sum, const Packs &at)
{
    typedef typename K::Part Part;
    const int32_t own = sum.num_own, end = own + sum.num_parts;
    const int32_t before = own ? own + sum.own_place : end;
    typename Part::sum total[UNROLL][N];
    pack<Part, N> rounded[UNROLL];

    if (own) {
        add_run<typename K::Row, N, K::weighted, UNROLL, MOST_SUM_ROWS>(sum.rows, 0, own, at,
                                                                        total);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            round_pack(total[u], rounded[u]);
    }
    if (before > own)
        add_run<Part, N, false, UNROLL, MOST_SUM_ROWS>(sum.rows, own, before, at, total);
#pragma unroll
    for (int u = 0; own && u < UNROLL; u++)
        add_pack<Part, N, false>(rounded[u], 1, before == own, total[u]);
    if (before < end)
        add_run<Part, N, false, UNROLL, MOST_SUM_ROWS>(sum.rows, before, end, at, total, false);
    store_packs<typename K::To, N, UNROLL>(total, at, sum.out);
}

/* The whole warp: as stream_sums, of rows that lie anywhere. */
template <typename K, typename Source>
static __device__ __forceinline__ void add_odd_sums(Source &source, struct summands &sum)
{
#pragma unroll 1
    while (source.find(sum, true)) {
        zero_empty_sum<K>(sum);
        if (sum.num_own + sum.num_parts)
            for_odd_row<typename K::Row, typename K::To, K::N, STEP_PACKS>(
                sum.elements, sum.out,
                [&](const struct shifted_packs &at) {
                    add_odd_packs<K, K::N, STEP_PACKS>(sum, at);
                },
                [&](int64_t i) { add_odd_packs<K, 1, 1>(sum, aligned_packs{i}); });
        source.end(sum);
    }
}

/* The whole warp: adds what a source has, of rows that are aligned or not. */
template <typename K, bool ODD, typename Source>
static __device__ __forceinline__ void add_sums(Source &source, char *ring, struct summands *sums)
{
    if constexpr (ODD)
        add_odd_sums<K>(source, sums[0]);
    else
        stream_sums<K>(source, ring, sums);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_small.cu - a combine or dispatch backward of few rows in one launch: expert ranks store
 * the sum of each row's pairs, rounded once, into the home rank's bank at the row's place; home
 * ranks add the parts of each token as they come, and their own (own_sums.cuh). banks.cuh has the
 * protocol.
 * Work: reads the rows of all pairs here once, writes this rank's unique rows for other ranks,
 * reads those of its tokens, writes T rows. Order: choices, then ranks.
 * Launch: phases.cuh; blocks that store, then blocks that add.
 */
#include "kernels/protocol/banks.cuh"
#include "kernels/streaming/own_sums.cuh"

/* Where the parts of this rank's tokens lie. */
struct banked_places {
    static constexpr bool on_nodes = false; /* all ranks count as one node */
    const struct epx_combine_rows &a;
    char *bank;

    __device__ __forceinline__ int64_t row(int64_t token, int32_t place) const
    {
        return token * a.plan.most_rows + place;
    }

    __device__ __forceinline__ bool has_part(int64_t token, int32_t place) const
    {
        return a.plan.token_slot[row(token, place)] >= 0;
    }

    __device__ __forceinline__ char *part_of_token(int64_t token, int32_t place) const
    {
        return row_in(a.banks, bank, row(token, place));
    }

    __device__ __forceinline__ float weight_of(int64_t token, int64_t choice) const
    {
        int32_t place = a.plan.pairs[token * a.plan.shape.top_k + choice].lead_place & 255;

        return words_in(a.banks, bank, row(token, place))[choice];
    }
};

template <typename T>
static __device__ void store_sum(const struct epx_combine_rows &a, uint64_t epoch, int32_t home,
                                 int32_t slice, struct epx_wire_record *record,
                                 struct row_list &list)
{
    char *bank = bank_on(a.comm, a.banks, epoch, home);
    int64_t row = (int64_t)record->token * a.plan.most_rows + record->place;
    struct part part = part_of(a.banks.slices, slice, a.row_bytes);

    list_pairs<T>(a, part.offset, record, list);
    sum_rows<typename T::row, typename T::part, MOST_SUM_ROWS>(
        list, record->num_slots, a.weights && !a.backward,
        part.bytes / (int64_t)sizeof(typename T::part), row_in(a.banks, bank, row) + part.offset);
    if (a.backward && a.weights && slice == 0)
        send_weights(a, record, words_in(a.banks, bank, row));
    __syncwarp();
    if (lane_id() == 0) {
        fence_release_sys();
        raise_flag(a.comm, flag_in(a.banks, bank, row, slice), epoch);
    }
    __syncwarp();
}

/* Expert side: the sums of all records here that are of other ranks' rows. */
template <typename T>
static __device__ void store_small_sums(const struct epx_combine_rows &a, uint64_t epoch,
                                        const struct record_range &range, struct row_list &list)
{
    const struct crew crew = crew_of(a.banks);
    const uint32_t slices = (uint32_t)a.banks.slices.num;
    char *records = a.plan.records[a.comm.rank];

    for (uint32_t i = (uint32_t)crew.warp; i < (uint32_t)range.num * slices;
         i += (uint32_t)crew.num) {
        struct row_source at = find_in_range(range, i / slices);
        struct epx_wire_record *record = epx_wire_record_at(&a.plan, records, at.source, at.row);

        if (record->num_slots)
            store_sum<T>(a, epoch, at.source, (int32_t)(i % slices), record, list);
    }
}

/* Waits for the verdict, then for the slices of a token's parts that come from other ranks: the
 * whole warp, of which each lane has a part, rank -1 = none. */
struct awaited_parts {
    static constexpr bool own_first = true;
    static constexpr int unroll = SUM_UNROLL / 2, rows = MOST_SUM_ROWS;
    const struct epx_combine_rows &a;
    const struct sum_list &list;
    struct verdict &verdict;
    uint64_t epoch;
    const uint64_t *flag;
    int32_t rank;

    __device__ bool operator()() const
    {
        if (!verdict())
            return false;
        return list.num_parts == 0 ||
               acquire_words(a.comm, rank < 0 || await_flag(a.comm, flag, epoch, rank));
    }
};

/* A slice of a token, and where its parts are listed. */
struct slice_of_token {
    int64_t token;
    int32_t slice;
    struct sum_list &list;
};

/* The whole warp: lists a slice of all parts of a token that come from other ranks; its ranks are
 * not more than lanes. */
static __device__ struct awaited_parts list_parts(const struct epx_combine_rows &a,
                                                  const struct banked_places &places,
                                                  const struct slice_of_token &at,
                                                  struct verdict &verdict)
{
    const int64_t token = at.token;
    struct sum_list &list = at.list;
    const int32_t i = lane_id(), rows = a.plan.token_num[token];
    const bool kept = i < rows && places.has_part(token, i);
    const int32_t rank = kept ? a.plan.token_rank[places.row(token, i)] : -1;
    const bool comes = kept && rank != a.comm.rank;
    const uint32_t lanes = __ballot_sync(~0u, comes);
    const uint32_t own = __ballot_sync(~0u, kept && !comes);
    const int32_t place = __popc(lanes & lanes_below());

    if (comes)
        list.parts.row[place] = places.part_of_token(token, i) + at.slice * a.banks.slices.bytes;
    if (kept && !comes)
        list.own_place = place;
    if (i == 0)
        list.num_parts = __popc(lanes);
    if (i == 0 && !own)
        list.own_place = 0;
    __syncwarp();
    return {a,
            list,
            verdict,
            verdict.x.epoch,
            flag_in(a.banks, places.bank, places.row(token, comes ? i : 0), at.slice),
            comes ? rank : -1};
}

/* Home side: adds the parts of each token; the first token's lists and own sum are made beside the
 * wait for the verdict. Returns whether this warp's parts have come. */
template <typename T>
static __device__ bool add_small_parts(const struct epx_combine_rows &a, struct verdict &verdict,
                                       struct sum_list &list)
{
    const struct exchange &x = verdict.x;
    const struct crew crew = crew_of(a.banks);
    const struct banked_places places = {a, bank_on(a.comm, a.banks, x.epoch, a.comm.rank)};
    const uint32_t slices = (uint32_t)a.banks.slices.num;

    for (uint32_t i = (uint32_t)crew.warp; i < (uint32_t)a.num_tokens * slices;
         i += (uint32_t)crew.num) {
        const int32_t slice = (int32_t)(i % slices);
        int64_t token = i / slices;
        struct part part = part_of(a.banks.slices, slice, a.row_bytes);

        list_own<T>(a, token, part.offset, list);
        if (!add_parts<T>(list, a.weights && !a.backward,
                          part.bytes / (int64_t)sizeof(typename T::part),
                          a.sums + in_row<T>(token * a.row_bytes + part.offset),
                          list_parts(a, places, {token, slice, list}, verdict)))
            return false;
        if (a.backward && weights_come(x) && a.grad_weights && slice == 0)
            take_all_weights(a, places, token);
        __syncwarp();
    }
    return true;
}

/* A block that takes. Lists of a routing that failed are not looked at. */
template <typename T>
static __device__ void take_sums(const struct epx_combine_rows &a, struct exchange &x,
                                 struct sum_list &list)
{
    struct verdict verdict = {a.comm, a.note, x, a.plan.outcome, false, false};
    bool ok = a.plan.outcome->code == EPX_SUCCESS && add_small_parts<T>(a, verdict, list);

    if (!verdict())
        return;
    if (is_last_thread())
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    all_content(a.comm, x, ok);
}

/* What a warp lists in its block's memory. */
union listing {
    struct row_list send;
    struct sum_list take;
};

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    combine_small(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct record_range range;
    __shared__ union listing lists[EPX_WAITING_THREADS / EPX_WARP];
    union listing &list = lists[threadIdx.x / EPX_WARP];
    bool takes = !is_sender(a.banks);

    if (!takes && is_last_warp())
        find_all_records(a.plan, a.comm.num_ranks, a.comm.rank, range);
    begin_small(a.comm, a.banks, a.note, a.plan.outcome->code, x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (!takes && a.plan.outcome->code == EPX_SUCCESS)
            store_small_sums<T>(a, x.epoch, range, list.send);
        if (takes)
            take_sums<T>(a, x, list.take);
    }
    if (!is_last_of_small(a.comm, a.banks, x, {a.note, a.plan.outcome, takes}))
        return;
    end_exchange(a.comm, x, 0, 0, a.num_tokens, x.outcome);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(combine_small);

int epx_launch_combine_small(const struct epx_combine_rows *args, EPX_Stream stream)
{
    return launch_phase(small_launch(args->banks, stream), kernels[epx_sum_kernel(args)], *args);
}

static const struct epx_loaded loaded(kernels);

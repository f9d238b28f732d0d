/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_small.cu - a combine or dispatch backward of few rows in one launch: expert ranks store
 * the sum of each row's pairs, rounded once, into the home rank's bank at the row's place; home
 * ranks add the rows of each token as they come. banks.cuh has the protocol.
 * Work: reads the rows of all pairs here, writes this rank's unique rows, reads those of its
 * tokens, writes T rows. Order: choices, then ranks.
 * Launch: phases.cuh; blocks that store, then comm.blocks blocks that add.
 */
#include "kernels/combine/sums.cuh"
#include "kernels/protocol/banks.cuh"

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
    sum_rows<typename T::row, typename T::part>(list, record->num_slots, a.weights && !a.backward,
                                                part.bytes / (int64_t)sizeof(typename T::part),
                                                row_in(a.banks, bank, row) + part.offset);
    if (a.backward && a.weights && slice == 0)
        send_weights(a, record, words_in(a.banks, bank, row));
    __syncwarp();
    if (lane_id() == 0)
        raise_flag(a.comm, flag_in(a.banks, bank, row, slice), epoch);
    __syncwarp();
}

/* Expert side: the sums of all records here. */
template <typename T>
static __device__ void store_small_sums(const struct epx_combine_rows &a, uint64_t epoch,
                                        struct record_range &range, struct row_list &list)
{
    const struct crew crew = crew_of(a.banks);
    char *records = a.plan.records[a.comm.rank];

    find_range(a.plan, a.comm.num_ranks, records, 0, a.plan.shape.max_tokens, range);
    for (int64_t i = crew.warp; i < range.num * a.banks.slices.num; i += crew.num) {
        struct row_source at = find_in_range(range, i / a.banks.slices.num);
        struct epx_wire_record *record = epx_wire_record_at(&a.plan, records, at.source, at.row);

        if (record->num_slots)
            store_sum<T>(a, epoch, at.source, (int32_t)(i % a.banks.slices.num), record, list);
    }
}

/* The whole warp: waits for a slice of all parts of a token. */
static __device__ bool await_parts(const struct epx_combine_rows &a,
                                   const struct banked_places &places, uint64_t epoch,
                                   int64_t token, int32_t slice)
{
    bool ok = true;

    for (int32_t i = lane_id(); ok && i < a.plan.token_num[token]; i += EPX_WARP)
        if (places.has_part(token, i))
            ok = await_flag(a.comm, flag_in(a.banks, places.bank, places.row(token, i), slice),
                            epoch, a.plan.token_rank[places.row(token, i)]);
    return acquire_words(a.comm, ok);
}

/* Home side: adds the parts of each token. Returns whether this warp's have come. */
template <typename T>
static __device__ bool add_small_parts(const struct epx_combine_rows &a, const struct exchange &x,
                                       struct row_list &list)
{
    const struct crew crew = crew_of(a.banks);
    const struct banked_places places = {a, bank_on(a.comm, a.banks, x.epoch, a.comm.rank)};
    const int32_t slices = a.banks.slices.num;

    for (int64_t i = crew.warp; i < (int64_t)a.num_tokens * slices; i += crew.num) {
        int64_t token = i / slices;
        struct part part = part_of(a.banks.slices, (int32_t)(i % slices), a.row_bytes);

        if (!await_parts(a, places, x.epoch, token, (int32_t)(i % slices)))
            return false;
        sum_rows<typename T::part, typename T::row>(
            list, list_parts(a, places, token, part.offset, list), 0,
            part.bytes / (int64_t)sizeof(typename T::part),
            a.sums + in_row<T>(token * a.row_bytes + part.offset));
        if (a.backward && x.weighted && a.grad_weights && part.offset == 0)
            take_weights(a, places, token);
        __syncwarp();
    }
    return true;
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    combine_small(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct record_range range;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    struct row_list &list = lists[threadIdx.x / EPX_WARP];
    bool takes = !is_sender(a.banks);

    begin_small(a.comm, a.banks, a.note, a.plan.outcome->code, x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (!takes && a.plan.outcome->code == EPX_SUCCESS)
            store_small_sums<T>(a, x.epoch, range, list);
        if (takes && await_ready(a.comm, a.note, x, a.plan.outcome))
            all_content(a.comm, x, add_small_parts<T>(a, x, list));
    }
    if (!is_last_of_small(a.comm, a.banks, x, {a.note, a.plan.outcome, takes}))
        return;
    if (x.outcome.code == EPX_SUCCESS)
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    end_exchange(a.comm, x, 0, 0, a.num_tokens, x.outcome);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(combine_small);

int epx_launch_combine_small(const struct epx_combine_rows *args, EPX_Stream stream)
{
    return launch_phase(small_launch(args->comm, args->banks, stream),
                        kernels[epx_sum_kernel(args)], *args);
}

static const struct epx_loaded loaded(kernels);

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * few_sums.cuh - a combine or dispatch backward of few rows in one launch: expert ranks send
 * the sum of each row's pairs, rounded once, into the home rank's bank at the row's place; home
 * ranks add the parts of each token as they come, and their own (own_sums.cuh). banks.cuh has the
 * protocol. A wire for sums has two functions more, as sums are made while they are sent, and added
 * while they come:
 *
 *   send_sum<T>()   the sum of the rows of a list into a slice of a bank
 *   add_sum<T>()    waits for the parts of a slice of a token and adds them; returns whether the
 *                   ranks agree and all came
 *
 * Weights of pairs that the home ranks give travel first: the first block that sends stores each
 * into the bank of the rank that its pair goes to, among the words for ids (small_ids.cuh), which
 * all carry the number of their operation. Then blocks that send wait too, for the verdict and for
 * the weights of each sum, and for nothing but the first blocks of the other ranks.
 *
 * Work: reads the rows of all pairs here once, writes this rank's unique rows for other ranks,
 * reads those of its tokens, writes T rows. Order: choices, then ranks, or their last choices.
 * Launch: phases.cuh, both phases in one kernel where the home ranks give weights; blocks that
 * send, then blocks that add.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_FEW_SUMS_CUH
#define EPX_KERNELS_FLOWS_SUMS_FEW_SUMS_CUH

#include "kernels/flows/sums/own_sums.cuh"
#include "kernels/flows/sums/sums.cuh"
#include "kernels/routing/pairs.cuh"
#include "kernels/wires/banks.cuh"
#include "kernels/wires/wire.cuh"

/* A slice of the sum of a record's pairs, and the rank that it goes to. */
struct sum_slice {
    int32_t home, slice;
    struct epx_wire_record *record;
};

/* A slice of a token, and where its parts are listed. */
struct slice_of_token {
    int64_t token;
    int32_t slice;
    struct sum_list &list;
};

/* Where the parts of this rank's tokens lie. */
struct banked_places {
    const struct epx_combine_rows &a;
    char *bank;

    __device__ __forceinline__ int64_t row(int64_t token, int32_t place) const
    {
        return token * a.plan.most_rows + place;
    }

    /* The row that a pair of a token travels with. */
    __device__ __forceinline__ int64_t row_of_pair(int64_t token, int64_t choice) const
    {
        return row(token, a.plan.pairs[token * a.plan.shape.top_k + choice].lead_place & 255);
    }
};

/* The words for the weights of a token's pairs in a bank. */
static __device__ __forceinline__ uint64_t *given_words(const struct epx_combine_rows &a,
                                                        char *bank, int32_t home, int32_t token)
{
    const struct epx_plan_shape &shape = a.plan.shape;

    return words_of_ids(bank) + ((int64_t)home * shape.max_tokens + token) * shape.top_k;
}

/* The first block: sends the weights of this rank's pairs that other ranks have. */
static __device__ EPX_COLD void send_given_weights(const struct epx_combine_rows &a, uint64_t epoch)
{
    const int32_t top_k = a.plan.shape.top_k, self = a.comm.rank;

    EPX_DELAY(a.comm);
    for (int32_t i = (int32_t)threadIdx.x; i < a.num_tokens * top_k; i += (int32_t)blockDim.x) {
        const int32_t rank = a.plan.pair_rank[i];

        if (rank < 0 || rank == self)
            continue;
        store_relaxed_sys(given_words(a, bank_on(a.comm, a.banks, epoch, rank), self, 0) + i,
                          tagged(epoch, __float_as_uint(a.weights[i])));
    }
}

/* The whole warp: puts the weights that a record's home gives into the list of pairs, once they
 * have come; returns whether all have. */
static __device__ EPX_COLD bool await_given_weights(const struct epx_combine_rows &a, int32_t home,
                                                    struct epx_wire_record *record, uint64_t epoch,
                                                    struct row_list &list)
{
    char *bank = bank_on(a.comm, a.banks, epoch, a.comm.rank);
    const uint64_t *words = given_words(a, bank, home, record->token);
    bool ok = true;

    EPX_DELAY(a.comm);
    for (int32_t i = lane_id(); ok && i < record->num_slots; i += EPX_WARP) {
        uint32_t bits = 0;

        ok = await_word(a.comm, words + (epx_wire_pairs(record)[i].expert_choice & 255), epoch,
                        home, &bits);
        list.weight[i] = __uint_as_float(bits);
    }
    ok = __all_sync(~0u, ok);
    __syncwarp();
    return ok;
}

/* The whole warp: sends a slice of the sum of a record's pairs, and with the first slice gradients
 * of weights. Returns whether weights that it waited for have come. */
template <typename T, typename Wire, bool GIVEN>
static __device__ __forceinline__ bool send_sum_slice(const struct epx_combine_rows &a,
                                                      uint64_t epoch, const struct sum_slice &at,
                                                      struct row_list &list)
{
    const struct bank_slice to = {a.banks, bank_on(a.comm, a.banks, epoch, at.home),
                                  (int64_t)at.record->token * a.plan.most_rows + at.record->place,
                                  at.slice};
    const struct part part = part_of(a.banks.slices, at.slice, a.row_bytes);
    const struct epx_wire_pair *pairs = epx_wire_pairs(at.record);
    const bool weighted = a.backward && a.weights && at.slice == 0;
    const struct stamp stamp = Wire::stamp_of(epoch);

    list_pairs<T>(a, part.offset, at.record, list);
    if (GIVEN && !await_given_weights(a, at.home, at.record, epoch, list))
        return false;
    EPX_DELAY(a.comm);
    Wire::template send_sum<T>(list, at.record->num_slots, multiplies(a), part.bytes, to, stamp);
    for (int32_t i = lane_id(); weighted && i < at.record->num_pairs; i += EPX_WARP) {
        const int32_t choice = (int32_t)(pairs[i].expert_choice & 255);

        Wire::send_word(to, choice, grad_of_weight(a, pairs[i].slot, choice), stamp);
    }
    __syncwarp();
    if (Wire::TELLS && lane_id() == 0) {
        fence_release_sys();
        Wire::tell(a.comm, to, stamp);
    }
    __syncwarp();
    return true;
}

/* Expert side: the sums of all records here that are of other ranks' rows. Returns whether what
 * this warp waited for has come. */
template <typename T, typename Wire, bool GIVEN>
static __device__ __forceinline__ bool
send_small_sums(const struct epx_combine_rows &a, uint64_t epoch, const struct record_range &range,
                struct row_list &list)
{
    const struct crew crew = crew_of(a.banks);
    const uint32_t slices = (uint32_t)a.banks.slices.num;
    char *records = a.plan.records[a.comm.rank];

    for (uint32_t i = (uint32_t)crew.warp; i < (uint32_t)range.num * slices;
         i += (uint32_t)crew.num) {
        struct row_source row = find_in_range(range, i / slices);
        const struct sum_slice at = {row.source, (int32_t)(i % slices),
                                     epx_wire_record_at(&a.plan, records, row.source, row.row)};

        if (at.record->num_slots && !send_sum_slice<T, Wire, GIVEN>(a, epoch, at, list))
            return false;
    }
    return true;
}

/* The whole warp, a pair a lane: gradients of the weights of a token's pairs, once the first slices
 * of its parts have come. Returns whether all have come. */
template <typename Wire>
static __device__ bool take_coming_weights(const struct banked_places &places, int64_t token,
                                           uint64_t epoch)
{
    const struct epx_combine_rows &a = places.a;
    const int32_t k = lane_id(), top_k = a.plan.shape.top_k;
    const int64_t pair = token * top_k + k;
    const int32_t rank = k < top_k ? a.plan.pair_rank[pair] : -1;
    float weight = 0;
    bool ok = true;

    if (rank == a.comm.rank)
        weight = grad_of_weight(a, a.plan.view.slots[pair], k);
    else if (rank >= 0)
        ok = Wire::take_word(
            a.comm,
            {{a.banks, places.bank, places.row_of_pair(token, k), 0}, Wire::stamp_of(epoch), rank},
            k, weight);
    if (ok && k < top_k)
        a.grad_weights[pair] = weight;
    return __all_sync(~0u, ok);
}

/* A row of a token whose part comes from another rank, a lane each; row -1 = it has none. */
struct coming_part {
    int64_t row;
    int32_t rank;
};

/* The whole warp: lists a slice of all parts of a token that come from other ranks; its ranks are
 * not more than lanes. */
template <typename Wire>
static __device__ __forceinline__ struct coming_part
list_coming_parts(const struct banked_places &places, const struct slice_of_token &at)
{
    const struct epx_device_plan &plan = places.a.plan;
    struct sum_list &list = at.list;
    const int32_t i = lane_id(), rows = plan.token_num[at.token];
    const int64_t row = places.row(at.token, i);
    const bool kept = i < rows && plan.token_slot[row] >= 0;
    const int32_t rank = kept ? plan.token_rank[row] : -1;
    const bool comes = kept && rank != places.a.comm.rank;
    const uint32_t lanes = __ballot_sync(~0u, comes);
    const uint32_t own = __ballot_sync(~0u, kept && !comes);
    const int32_t place = __popc(lanes & lanes_below());

    if (comes) {
        list.parts.row[place] = Wire::place({places.a.banks, places.bank, row, at.slice});
        list.parts.node[place] = rank;
    }
    if (kept && !comes)
        list.own_place = place;
    if (i == 0)
        list.num_parts = __popc(lanes);
    if (i == 0 && !own)
        list.own_place = 0;
    __syncwarp();
    if (plan.shape.by_choice && lanes) {
        const int32_t own_place =
            order_by_choice(places.a, at.token, list.parts.row, list.parts.node, __popc(lanes));

        if (i == 0)
            list.own_place = own_place;
        __syncwarp();
    }
    return {comes ? row : -1, rank};
}

/* Home side: adds the parts of each token; the first token's lists are made beside the wait for the
 * verdict. Returns whether this warp's parts have come. */
template <typename T, typename Wire>
static __device__ bool add_small_parts(const struct epx_combine_rows &a, struct verdict &verdict,
                                       struct sum_list &list)
{
    const struct crew crew = crew_of(a.banks);
    const struct banked_places places = {a, bank_on(a.comm, a.banks, verdict.x.epoch, a.comm.rank)};
    const uint32_t slices = (uint32_t)a.banks.slices.num;

    for (uint32_t i = (uint32_t)crew.warp; i < (uint32_t)a.num_tokens * slices;
         i += (uint32_t)crew.num) {
        const struct slice_of_token at = {i / slices, (int32_t)(i % slices), list};
        const struct part part = part_of(a.banks.slices, at.slice, a.row_bytes);
        char *out = a.sums + in_row<T>(at.token * a.row_bytes + part.offset);

        const int32_t num_own = list_own<T>(a, at.token, part.offset, list.own);

        if (lane_id() == 0)
            list.num_own = num_own;
        __syncwarp();
        if (!Wire::template add_sum<T>(places, at, part.bytes, out, verdict))
            return false;
        if (a.backward && weights_come(verdict.x) && a.grad_weights && at.slice == 0 &&
            !take_coming_weights<Wire>(places, at.token, verdict.x.epoch))
            return false;
        __syncwarp();
    }
    return true;
}

/* A block that takes. Lists of a routing that failed are not looked at. */
template <typename T, typename Wire>
static __device__ void take_sums(const struct epx_combine_rows &a, struct exchange &x,
                                 struct sum_list &list)
{
    struct verdict verdict = {a.comm, a.note, x, a.plan.outcome, false, false};
    bool ok = a.plan.outcome->code == EPX_SUCCESS && add_small_parts<T, Wire>(a, verdict, list);

    if (!verdict())
        return;
    if (is_last_thread())
        count_route_rows(a.comm, a.plan, a.plan.recv_rows, a.row_bytes);
    all_content(a.comm, x, ok);
}

/* A block that sends where the home ranks give weights, apart from the code that most run. */
template <typename T, typename Wire>
static __device__ EPX_COLD void
send_by_given_weights(const struct epx_combine_rows &a, struct exchange &x,
                      const struct record_range &range, struct row_list &list)
{
    const bool routed = a.plan.outcome->code == EPX_SUCCESS;
    bool ok = true;

    if (routed && blockIdx.x == 0)
        send_given_weights(a, x.epoch);
    if (!await_ready(a.comm, a.note, x, a.plan.outcome))
        return;
    if (routed)
        ok = send_small_sums<T, Wire, true>(a, x.epoch, range, list);
    all_content(a.comm, x, ok);
}

/* What a warp lists in shared memory. */
union listing {
    struct row_list send;
    struct sum_list take;
};

/* All of a kernel. */
template <typename T, typename Wire>
static __device__ __forceinline__ void combine_few(const struct epx_combine_rows &a)
{
    __shared__ struct exchange x;
    __shared__ struct record_range range;
    __shared__ union listing lists[EPX_WAITING_THREADS / EPX_WARP];
    union listing &list = lists[threadIdx.x / EPX_WARP];
    bool takes = !is_sender(a.banks);

    begin_phase(a.banks.phase);
    if (!takes && is_last_warp())
        find_all_records(a.plan, a.comm.num_ranks, a.comm.rank, range);
    begin_small(a.comm, a.banks, a.note, a.plan.outcome->code, look_first(a.comm), x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (takes)
            take_sums<T, Wire>(a, x, list.take);
        else if (a.given)
            send_by_given_weights<T, Wire>(a, x, range, list.send);
        else if (a.plan.outcome->code == EPX_SUCCESS)
            send_small_sums<T, Wire, false>(a, x.epoch, range, list.send);
    }
    if (!is_last_of_small(a.comm, a.banks, x, {a.note, a.plan.outcome, takes || a.given}))
        return;
    end_exchange(a.comm, x, 0, 0, a.num_tokens, x.outcome);
}

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale_small.cu - a combine backward of few rows in one launch: gradients go into the bank of
 * every other rank that needs them, and from there, or from this rank's own rows, scaled into their
 * slots. banks.cuh has the protocol.
 * Work: as move_grads.cu; a gradient is read once for each of its slots. Order: the same, so the
 * bytes are too.
 * Launch: phases.cuh; blocks that store, then blocks that take, each an equal share of the slots.
 * If that is more than a few, it is one of this rank's own rows, and then, when more of them have
 * come, one of those of other ranks.
 */
#include "kernels/dispatch/scales.cuh"
#include "kernels/dispatch/small_rows.cuh"
#include "kernels/dispatch/spreads.cuh"

enum { MOST_DOTS = 128, FEW_SLOTS = 8 };

/* Where the gradients of a batch of slots lie, and the dots of the blocks of their rows, in shared
 * memory. */
template <typename T> struct batch {
    const char *grad[MOST_DOTS];
    int64_t slot[MOST_DOTS]; /* -1 = none */
    typename T::sum dot[MOST_DOTS];
};

/* The records of this rank's own rows, or all others, of the range of all: the number of one in the
 * range is by `more` larger than that in the set, from a number in the set on. */
struct record_set {
    int64_t num, from, more;
};

static __device__ struct record_set find_records(const struct record_range &range, int32_t rank,
                                                 bool own)
{
    const int64_t begin = records_before(range, rank), num = range.end[rank] - range.first[rank];

    if (own)
        return {num, 0, begin};
    return {range.num - num, begin, num};
}

/* The slots that this block scales: from first up to end of those of a set of records, numbered
 * record by record, each of which has as many numbers as it may have slots. */
struct slot_share {
    struct record_set set;
    int64_t first, end;
    int32_t most;   /* in a batch */
    int32_t blocks; /* of a row, of 1024 elements */
};

static __device__ __forceinline__ int32_t blocks_that_take(const struct epx_dispatch_rows &a)
{
    return crew_of(a.banks).num / ((int32_t)blockDim.x / EPX_WARP);
}

template <typename T>
static __device__ struct slot_share share_slots(const struct epx_dispatch_rows &a,
                                                const struct record_set &set)
{
    const int64_t slots = set.num * epx_most_slots_of_record(&a.plan.shape);
    const int32_t num = blocks_that_take(a), block = crew_of(a.banks).warp % num;
    const int32_t blocks = (int32_t)epx_dot_blocks(a.row_bytes / (int64_t)sizeof(T));

    return {set, slots * block / num, slots * (block + 1) / num,
            blocks && blocks < MOST_DOTS ? MOST_DOTS / blocks : 1, blocks};
}

/* Slots of the batch that begins with one of a share. */
static __device__ __forceinline__ int32_t slots_of_batch(const struct slot_share &share,
                                                         int64_t first)
{
    return (int32_t)(share.end - first < share.most ? share.end - first : share.most);
}

/* The record of a set, by its number there. */
static __device__ __forceinline__ struct row_source
find_record(const struct record_range &range, const struct record_set &set, int64_t i)
{
    return find_in_range(range, i < set.from ? i : i + set.more);
}

/* The whole block: finds the slots of a batch, a thread for each slice of a gradient that comes
 * from another rank, and waits for these. */
template <typename T>
static __device__ bool find_batch(const struct epx_dispatch_rows &a, uint64_t epoch,
                                  const struct record_range &range, const struct slot_share &share,
                                  int64_t first, struct batch<T> &batch)
{
    const int32_t width = epx_most_slots_of_record(&a.plan.shape), slices = a.banks.slices.num;
    const int32_t num = slots_of_batch(share, first);
    char *bank = bank_on(a.comm, a.banks, epoch, a.comm.rank);
    bool ok = true, comes = false;

    for (int32_t i = (int32_t)threadIdx.x; ok && i < num * slices; i += (int32_t)blockDim.x) {
        const int32_t place = i / slices, slice = i % slices;
        const int32_t pair = (int32_t)((first + place) % width);
        struct row_source at = find_record(range, share.set, (first + place) / width);
        struct epx_wire_record *record =
            epx_wire_record_at(&a.plan, a.plan.records[a.comm.rank], at.source, at.row);
        const bool is = pair < record->num_slots;
        const int32_t token = record->token;

        if (slice == 0) {
            batch.slot[place] = is ? epx_wire_pairs(record)[pair].slot : -1;
            batch.grad[place] = row_that_came(a, bank, at.source, token);
        }
        if (!is || at.source == a.comm.rank)
            continue;
        comes = true;
        ok = await_flag(a.comm, flag_in(a.banks, bank, bank_row(a, at.source, token), slice), epoch,
                        at.source);
    }
    if (__any_sync(~0u, comes))
        ok = acquire_words(a.comm, ok);
    return __syncthreads_and(ok);
}

/* The whole warp: 1024 elements of a gradient into its slot. */
template <typename T, int N>
static __device__ void scale_block(const struct epx_dispatch_rows &a, struct batch<T> &batch,
                                   int32_t place, int64_t first, typename T::sum &dot)
{
    const int64_t elements = a.row_bytes / (int64_t)sizeof(T), slot = batch.slot[place];
    const T *grad_row = (const T *)(const void *)batch.grad[place];
    const T *forward_row = (const T *)(const void *)a.forward + slot * elements;
    const float weight = a.weights ? a.weights[slot] : 1;
    const int32_t num = elements_of_block(elements, first);
    struct block_part<T, N> grad, forward;

    load_block<T, N>(grad_row + first, num, grad);
    if (a.recv_weights) {
        load_block<T, N>(forward_row + first, num, forward);
        typename T::sum sum = dot_of_block<T, N>(grad, forward);

        if (lane_id() == 0)
            dot = sum;
    }
    store_block<T, N>(grad, weight, a.weights != NULL, num,
                      (T *)(void *)a.recv + slot * elements + first);
}

/* The whole block: scales the slots of a batch, each warp a block of a row at a time; then a thread
 * for each slot adds up its dots. */
template <typename T>
static __device__ void scale_batch(const struct epx_dispatch_rows &a, int32_t num, int32_t blocks,
                                   struct batch<T> &batch)
{
    const int32_t me = (int32_t)threadIdx.x, warps = (int32_t)blockDim.x / EPX_WARP;
    typename T::sum total = 0;

    for (int32_t done = 0; done < blocks; done += MOST_DOTS) {
        const int32_t here = blocks - done < MOST_DOTS ? blocks - done : MOST_DOTS;

        for (int32_t i = me / EPX_WARP; i < num * here; i += warps) {
            const int32_t place = i / here;
            const int64_t first = (int64_t)(done + i % here) * BLOCK_ELEMENTS;

            if (batch.slot[place] < 0)
                continue;
            if (rows_are_aligned(a, batch.grad[place]))
                scale_block<T, 16 / sizeof(T)>(a, batch, place, first, batch.dot[i]);
            else
                scale_block<T, 1>(a, batch, place, first, batch.dot[i]);
        }
        __syncthreads();
        for (int32_t b = 0; a.recv_weights && me < num && b < here; b++)
            total = done + b ? add(total, batch.dot[me * here + b]) : batch.dot[me * here];
        __syncthreads();
    }
    if (a.recv_weights && me < num && batch.slot[me] >= 0)
        a.recv_weights[batch.slot[me]] = (float)total;
    __syncthreads();
}

/* This block's share of the slots of a set of records. Returns whether their gradients have
 * come. */
template <typename T>
static __device__ bool scale_share(const struct epx_dispatch_rows &a, uint64_t epoch,
                                   const struct record_range &range, const struct slot_share &share,
                                   struct batch<T> &batch)
{
    for (int64_t first = share.first; first < share.end; first += share.most) {
        if (!find_batch<T>(a, epoch, range, share, first, batch))
            return false;
        scale_batch<T>(a, slots_of_batch(share, first), share.blocks, batch);
    }
    return true;
}

/* The blocks that take. Returns whether the gradients of this block's slots have come. */
template <typename T>
static __device__ bool scale_slots(const struct epx_dispatch_rows &a, uint64_t epoch,
                                   const struct record_range &range, struct batch<T> &batch)
{
    const struct record_set all = {range.num, 0, 0};
    const int64_t slots = range.num * epx_most_slots_of_record(&a.plan.shape);
    const int32_t sets = a.comm.num_ranks > 1 && slots > FEW_SLOTS * blocks_that_take(a) ? 2 : 1;

#pragma unroll 1
    for (int32_t i = 0; i < sets; i++) {
        const struct record_set set = sets > 1 ? find_records(range, a.comm.rank, i == 0) : all;

        if (!scale_share<T>(a, epoch, range, share_slots<T>(a, set), batch))
            return false;
    }
    zero_rest<false>(a, true, crew_of(a.banks));
    return true;
}

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    scale_small(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct record_range range;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    __shared__ struct batch<T> batch;
    bool takes = !is_sender(a.banks);

    begin_phase(a.banks.phase);
    if (takes && is_last_warp())
        find_all_records(a.plan, a.comm.num_ranks, -1, range);
    begin_small(a.comm, a.banks, a.note, a.plan.outcome->code, look_first(a.comm), x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (!takes && a.comm.num_ranks > 1 && a.plan.outcome->code == EPX_SUCCESS)
            store_small_rows<false>(a, x.epoch, lists[threadIdx.x / EPX_WARP]);
        if (takes && await_ready(a.comm, a.note, x, a.plan.outcome)) {
            if (is_last_thread())
                count_route_rows(a.comm, a.plan, a.plan.send_rows, a.row_bytes);
            all_content(a.comm, x, scale_slots<T>(a, x.epoch, range, batch));
        }
    }
    if (!is_last_of_small(a.comm, a.banks, x, {a.note, a.plan.outcome, takes}))
        return;
    end_exchange(a.comm, x, 0, 0, *a.plan.view.arrived_rows, x.outcome);
}

static void (*const kernels[NUM_ADDED_TYPES])(struct epx_dispatch_rows) =
    KERNELS_OF_TYPES(scale_small);

int epx_launch_scale_small(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    return launch_phase(small_launch(args->banks, stream), kernels[args->datatype - EPX_FLOAT16],
                        *args);
}

static const struct epx_loaded loaded(kernels);

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale_small.cu - a combine backward of few rows in one launch: gradients go into the bank of
 * every other rank that needs them, and from there, or from this rank's own rows, scaled into their
 * slots. banks.cuh has the protocol.
 * Work: as move_grads.cu; a gradient is read once for each of its slots. Order: the same, so the
 * bytes are too.
 * Launch: phases.cuh; blocks that store, then blocks that take, each about as many of the slots.
 * If that is more than a few, it is one of this rank's own rows, and then, when more of them have
 * come, one of those of other ranks.
 */
#include "kernels/dispatch/scales.cuh"
#include "kernels/dispatch/small_rows.cuh"
#include "kernels/dispatch/spreads.cuh"

enum { MOST_DOTS = 128, FEW_SLOTS = 8 };

/* The slots of a batch, in shared memory: where their gradients lie, the flags of these if they come
 * from another rank, and the dots of the blocks of their rows. */
template <typename T> struct batch {
    int32_t num;
    const char *grad[MOST_DOTS];
    const uint64_t *flags[MOST_DOTS]; /* of each slice; NULL = this rank's own */
    int32_t source[MOST_DOTS];
    int64_t slot[MOST_DOTS];
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

/* The slots that this block scales, of a set of records. Each record has as many numbers as it may
 * have slots; first all records' first ones are numbered, so that the blocks, each of which has
 * every step-th number, have about as many slots. */
struct slot_share {
    struct record_set set;
    int32_t first, step, num;
    int32_t most;   /* numbers in a batch */
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
    const int32_t numbers = (int32_t)set.num * epx_most_slots_of_record(&a.plan.shape);
    const int32_t num = blocks_that_take(a), block = crew_of(a.banks).warp % num;
    const int32_t blocks = (int32_t)epx_dot_blocks(a.row_bytes / (int64_t)sizeof(T));

    return {set,
            block,
            num,
            (numbers - block + num - 1) / num,
            blocks && blocks < MOST_DOTS ? MOST_DOTS / blocks : 1,
            blocks};
}

/* The record of a set, by its number there. */
static __device__ __forceinline__ struct row_source
find_record(const struct record_range &range, const struct record_set &set, int64_t i)
{
    return find_in_range(range, i < set.from ? i : i + set.more);
}

/* One thread: lists the slot of a number of a share, if there is one. */
template <typename T>
static __device__ void list_slot(const struct epx_dispatch_rows &a, char *bank,
                                 const struct record_range &range, const struct slot_share &share,
                                 int32_t number, struct batch<T> &batch)
{
    const int32_t pair = number / (int32_t)share.set.num, rank = a.comm.rank;
    const struct row_source at = find_record(range, share.set, number % (int32_t)share.set.num);
    struct epx_wire_record *record =
        epx_wire_record_at(&a.plan, a.plan.records[rank], at.source, at.row);
    const int32_t token = record->token;
    int32_t place;

    if (pair >= record->num_slots)
        return;
    place = atomicAdd(&batch.num, 1);
    batch.slot[place] = epx_wire_pairs(record)[pair].slot;
    batch.grad[place] = row_that_came(a, bank, at.source, token);
    batch.source[place] = at.source;
    batch.flags[place] =
        at.source == rank ? NULL : flag_in(a.banks, bank, bank_row(a, at.source, token), 0);
}

/* The whole block: waits for the gradients of a batch that come from other ranks. */
template <typename T>
static __device__ bool await_batch(const struct epx_dispatch_rows &a, uint64_t epoch,
                                   const struct batch<T> &batch)
{
    const int32_t slices = a.banks.slices.num;
    bool ok = true, comes = false;

    for (int32_t i = (int32_t)threadIdx.x; ok && i < batch.num * slices; i += (int32_t)blockDim.x) {
        const uint64_t *flags = batch.flags[i / slices];

        if (!flags)
            continue;
        comes = true;
        ok = await_flag(a.comm, flags + i % slices, epoch, batch.source[i / slices]);
    }
    if (__any_sync(~0u, comes))
        ok = acquire_words(a.comm, ok);
    return __syncthreads_and(ok);
}

/* The whole block: lists the slots of the batch that begins with the first-th number of a share,
 * beside the wait for the verdict, and waits for their gradients. */
template <typename T>
static __device__ bool find_batch(const struct epx_dispatch_rows &a,
                                  const struct record_range &range, const struct slot_share &share,
                                  int32_t first, struct batch<T> &batch, struct verdict &verdict)
{
    const int32_t num = share.num - first < share.most ? share.num - first : share.most;
    char *bank = bank_on(a.comm, a.banks, verdict.x.epoch, a.comm.rank);

    for (int32_t i = (int32_t)threadIdx.x; i < num; i += (int32_t)blockDim.x)
        list_slot(a, bank, range, share, share.first + (first + i) * share.step, batch);
    if (!verdict())
        return false;
    __syncthreads();
    return await_batch(a, verdict.x.epoch, batch);
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
static __device__ void scale_batch(const struct epx_dispatch_rows &a, int32_t blocks,
                                   struct batch<T> &batch)
{
    const int32_t num = batch.num;
    const int32_t me = (int32_t)threadIdx.x, warps = (int32_t)blockDim.x / EPX_WARP;
    typename T::sum total = 0;

    for (int32_t done = 0; done < blocks; done += MOST_DOTS) {
        const int32_t here = blocks - done < MOST_DOTS ? blocks - done : MOST_DOTS;

        for (int32_t i = me / EPX_WARP; i < num * here; i += warps) {
            const int32_t place = i / here;
            const int64_t first = (int64_t)(done + i % here) * BLOCK_ELEMENTS;

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
    if (a.recv_weights && me < num)
        a.recv_weights[batch.slot[me]] = (float)total;
    if (me == 0)
        batch.num = 0;
    __syncthreads();
}

/* This block's share of the slots of a set of records. Returns whether the ranks agree and the
 * gradients have come. */
template <typename T>
static __device__ bool scale_share(const struct epx_dispatch_rows &a,
                                   const struct record_range &range, const struct slot_share &share,
                                   struct batch<T> &batch, struct verdict &verdict)
{
    for (int32_t first = 0; first < share.num; first += share.most) {
        if (!find_batch<T>(a, range, share, first, batch, verdict))
            return false;
        scale_batch<T>(a, share.blocks, batch);
    }
    return true;
}

/* All slots that this block scales. */
template <typename T>
static __device__ bool scale_slots(const struct epx_dispatch_rows &a,
                                   const struct record_range &range, struct batch<T> &batch,
                                   struct verdict &verdict)
{
    const struct record_set all = {range.num, 0, 0};
    const int64_t slots = range.num * epx_most_slots_of_record(&a.plan.shape);
    const int32_t sets = a.comm.num_ranks > 1 && slots > FEW_SLOTS * blocks_that_take(a) ? 2 : 1;

#pragma unroll 1
    for (int32_t i = 0; i < sets; i++) {
        const struct record_set set = sets > 1 ? find_records(range, a.comm.rank, i == 0) : all;

        if (!scale_share<T>(a, range, share_slots<T>(a, set), batch, verdict))
            return false;
    }
    return true;
}

/* A block that takes. Lists of a routing that failed are not looked at. */
template <typename T>
static __device__ void take_grads(const struct epx_dispatch_rows &a, struct exchange &x,
                                  const struct record_range &range, struct batch<T> &batch)
{
    struct verdict verdict = {a.comm, a.note, x, a.plan.outcome, false, false};
    const bool ok = a.plan.outcome->code == EPX_SUCCESS && scale_slots<T>(a, range, batch, verdict);

    if (!verdict())
        return;
    if (ok)
        zero_rest<false>(a, true, crew_of(a.banks));
    if (is_last_thread())
        count_route_rows(a.comm, a.plan, a.plan.send_rows, a.row_bytes);
    all_content(a.comm, x, ok);
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
    if (threadIdx.x == 0)
        batch.num = 0;
    if (takes && is_last_warp())
        find_all_records(a.plan, a.comm.num_ranks, -1, range);
    begin_small(a.comm, a.banks, a.note, a.plan.outcome->code, look_first(a.comm), x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (!takes && a.comm.num_ranks > 1 && a.plan.outcome->code == EPX_SUCCESS)
            store_small_rows<false>(a, x.epoch, lists[threadIdx.x / EPX_WARP]);
        if (takes)
            take_grads<T>(a, x, range, batch);
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

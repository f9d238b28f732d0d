/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scale_small.cu - a combine backward of few rows in one launch: gradients go into the bank of
 * every other rank that needs them, and from there, or from this rank's own rows, scaled into their
 * slots. banks.cuh has the protocol.
 * Work: as move_grads.cu; a gradient is read once for each of its slots. Order: the same, so the
 * bytes are too.
 * Launch: phases.cuh; blocks that store, then blocks that take, each about as many of the slots. If
 * that is more than a few, first those of this rank's own rows, and then, when more of them have
 * come, those of other ranks.
 */
#include "kernels/flows/rows/small_rows.cuh"
#include "kernels/flows/rows/spreads.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/records.cuh"
#include "kernels/warp/dots.cuh"
#include "kernels/warp/sum_rows.cuh"
#include "kernels/wires/slice_flags.cuh"

enum { MOST_DOTS = 128, FEW_SLOTS = 8 };
static_assert((int)MOST_DOTS <= (int)EPX_WAITING_THREADS, "a thread lists a slot of a batch");

/* The slots of a batch, in shared memory: where their gradients lie, the flags of these if they
 * come from another rank, and the dots of the blocks of their rows. */
template <typename T> struct batch {
    int32_t num; /* 0 until it is listed */
    const char *grad[MOST_DOTS];
    const uint64_t *flags[MOST_DOTS]; /* of each slice; NULL = this rank's own */
    int32_t source[MOST_DOTS];
    int64_t slot[MOST_DOTS];
    typename T::sum dot[MOST_DOTS];
};

/*
 * The slots that this block scales: every step-th number of all. Each record has as many numbers as
 * it may have slots, so that a number may be of none: first those of this rank's own rows, then all
 * others; of either first all records' first ones, so that blocks have about as many slots.
 */
struct slot_share {
    const struct record_range &range;
    int32_t own, others, before; /* records: of own rows, of others, of ranks before this one */
    int32_t width;               /* numbers of a record */
    int32_t first, step, num;
    int32_t early;  /* how many of the first come in batches of their own */
    int32_t most;   /* in a batch */
    int32_t blocks; /* of a row, of 1024 elements */
};

static __device__ __forceinline__ int32_t blocks_that_take(const struct epx_dispatch_rows &a)
{
    return crew_of(a.banks).num / ((int32_t)blockDim.x / EPX_WARP);
}

/* How many of the numbers from `first` on, every step-th, are below an end. */
static __device__ __forceinline__ int32_t numbers_below(int32_t end, int32_t first, int32_t step)
{
    return first < end ? (end - first + step - 1) / step : 0;
}

template <typename T>
static __device__ struct slot_share share_slots(const struct epx_dispatch_rows &a,
                                                const struct record_range &range)
{
    const int32_t width = epx_most_slots_of_record(&a.plan.shape), rank = a.comm.rank;
    const int32_t own = (int32_t)(range.end[rank] - range.first[rank]), all = (int32_t)range.num;
    const int32_t step = blocks_that_take(a), first = crew_of(a.banks).warp % step;
    const int32_t blocks = (int32_t)epx_dot_blocks(a.row_bytes / (int64_t)sizeof(T));
    const bool splits = a.comm.num_ranks > 1 && all * width > FEW_SLOTS * step;

    return {range,
            own,
            all - own,
            (int32_t)records_before(range, rank),
            width,
            first,
            step,
            numbers_below(all * width, first, step),
            splits ? numbers_below(own * width, first, step) : 0,
            blocks && blocks < MOST_DOTS ? MOST_DOTS / blocks : 1,
            blocks};
}

/* Where in the share the batch ends that begins at a place of it. */
static __device__ __forceinline__ int32_t end_of_batch(const struct slot_share &share,
                                                       int32_t first)
{
    const int32_t limit = first < share.early ? share.early : share.num;

    return limit - first < share.most ? limit : first + share.most;
}

/* What a number is of: the pair-th slot of a record's row, if there is one. */
struct pair_here {
    struct row_source at;
    int32_t pair;
};

static __device__ struct pair_here find_pair(const struct slot_share &share, int32_t number)
{
    const int32_t early = share.own * share.width;
    const bool is_own = number < early;
    const int32_t i = is_own ? number : number - early, num = is_own ? share.own : share.others;
    const int32_t record = i % num;
    const int32_t skipped = is_own ? share.before : record < share.before ? 0 : share.own;

    return {find_in_range(share.range, record + skipped), i / num};
}

/* One thread: lists the slot of a number, if there is one. */
template <typename T>
static __device__ void list_slot(const struct epx_dispatch_rows &a, char *bank,
                                 const struct pair_here &here, struct batch<T> &batch)
{
    const struct row_source &at = here.at;
    const int32_t rank = a.comm.rank;
    struct epx_wire_record *record =
        epx_wire_record_at(&a.plan, a.plan.records[rank], at.source, at.row);
    const int32_t token = record->token;
    int32_t place;

    if (here.pair >= record->num_slots)
        return;
    place = atomicAdd(&batch.num, 1);
    batch.slot[place] = epx_wire_pairs(record)[here.pair].slot;
    const struct bank_slice from = {a.banks, bank, bank_row(a, at.source, token), 0};

    batch.grad[place] = at.source == rank ? a.rows + token * a.row_bytes : flag_wire::place(from);
    batch.source[place] = at.source;
    batch.flags[place] = at.source == rank ? NULL : flag_of(from);
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

/* The i-th of the threads that list: lists a slot of the batch that begins at a place of the share.
 * The block sees them behind its next barrier. */
template <typename T>
static __device__ void list_batch(const struct epx_dispatch_rows &a, uint64_t epoch,
                                  const struct slot_share &share, int32_t first, int32_t i,
                                  struct batch<T> &batch)
{
    char *bank = bank_on(a.comm, a.banks, epoch, a.comm.rank);

    if (first + i < end_of_batch(share, first))
        list_slot(a, bank, find_pair(share, share.first + (first + i) * share.step), batch);
}

/* The whole warp: 1024 elements of a gradient into its slot. */
template <typename T, int N>
static __device__ void scale_block(const struct epx_dispatch_rows &a, struct batch<T> &batch,
                                   int32_t place, int64_t first, typename T::sum &dot)
{
    const int64_t elements = a.row_bytes / (int64_t)sizeof(T), slot = batch.slot[place];
    const T *grad_row = (const T *)(const void *)batch.grad[place];
    const T *forward_row = (const T *)(const void *)a.forward + slot * elements;
    struct block_part<T, N> grad, forward;
    struct scaled_slot<T> to;

    to.block = (T *)(void *)a.recv + slot * elements + first;
    to.elements = elements_of_block(elements, first);
    to.weight = a.weights ? a.weights[slot] : 1;
    to.weighted = a.weights != NULL;
    load_block<T, N>(grad_row + first, to.elements, grad);
    if (!a.recv_weights) {
        store_block<T, N>(grad, to);
        return;
    }
    load_block<T, N>(forward_row + first, to.elements, forward);
    typename T::sum sum =
        sum_shares<typename T::sum, N>(store_and_multiply<T, N>(grad, forward, to));

    if (lane_id() == 0)
        dot = sum;
}

/* The whole block: scales the slots of a batch, each warp a block of a row at a time, the last warp
 * the fewest; then, behind a barrier, a thread for each slot adds up its dots. */
template <typename T>
static __device__ void scale_batch(const struct epx_dispatch_rows &a, int32_t blocks,
                                   struct batch<T> &batch)
{
    const int32_t num = batch.num;
    const int32_t me = (int32_t)threadIdx.x, warps = (int32_t)blockDim.x / EPX_WARP;
    typename T::sum total = 0;

    for (int32_t done = 0; done == 0 || done < blocks; done += MOST_DOTS) {
        const int32_t here = blocks - done < MOST_DOTS ? blocks - done : MOST_DOTS;

        for (int32_t i = me / EPX_WARP; i < num * here; i += warps) {
            const int32_t place = i / here;
            const int64_t first = (int64_t)(done + i % here) * BLOCK_ELEMENTS;

            if (rows_are_aligned(a.recv, a.forward, batch.grad[place], a.row_bytes))
                scale_block<T, 16 / sizeof(T)>(a, batch, place, first, batch.dot[i]);
            else
                scale_block<T, 1>(a, batch, place, first, batch.dot[i]);
        }
        __syncthreads();
        for (int32_t b = 0; a.recv_weights && me < num && b < here; b++)
            total = add(total, batch.dot[me * here + b]);
        if (blocks > MOST_DOTS)
            __syncthreads();
    }
    if (a.recv_weights && me < num)
        a.recv_weights[batch.slot[me]] = (float)total;
    if (me == 0)
        batch.num = 0;
}

/* The slots that this block scales. The last warps list those of a batch beside the batch before;
 * those of the first batch are listed by the first warps, while the last waits for the verdict.
 * Returns whether the ranks agree and all gradients have come. */
template <typename T>
static __device__ bool scale_slots(const struct epx_dispatch_rows &a,
                                   const struct record_range &range, struct batch<T> batches[2],
                                   struct verdict &verdict)
{
    const struct slot_share share = share_slots<T>(a, range);
    const uint64_t epoch = verdict.x.epoch;
    const int32_t me = (int32_t)threadIdx.x, from_end = (int32_t)blockDim.x - 1 - me;
    int32_t turn = 0;

    list_batch<T>(a, epoch, share, 0, me, batches[0]);
    if (!verdict())
        return false;
#pragma unroll 1
    for (int32_t first = 0, end; first < share.num; first = end, turn ^= 1) {
        end = end_of_batch(share, first);
        if (!await_batch<T>(a, epoch, batches[turn]))
            return false;
        list_batch<T>(a, epoch, share, end, from_end, batches[turn ^ 1]);
        scale_batch<T>(a, share.blocks, batches[turn]);
    }
    return true;
}

/* A block that takes. Lists of a routing that failed are not looked at. */
template <typename T>
static __device__ void take_small_grads(const struct epx_dispatch_rows &a, struct exchange &x,
                                        const struct record_range &range,
                                        struct batch<T> batches[2])
{
    struct verdict verdict = {a.comm, a.note, x, a.plan.outcome, false, false};
    const bool ok =
        a.plan.outcome->code == EPX_SUCCESS && scale_slots<T>(a, range, batches, verdict);

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
    __shared__ struct batch<T> batches[2];
    bool takes = !is_sender(a.banks);

    begin_phase(a.banks.phase);
    if (threadIdx.x < 2)
        batches[threadIdx.x].num = 0;
    if (takes && is_last_warp())
        find_all_records(a.plan, a.comm.num_ranks, -1, range);
    begin_small(a.comm, a.banks, a.note, a.plan.outcome->code, look_first(a.comm), x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (!takes && a.comm.num_ranks > 1 && a.plan.outcome->code == EPX_SUCCESS)
            send_small_rows<struct flag_wire, false>(a, x.epoch, lists[threadIdx.x / EPX_WARP]);
        if (takes)
            take_small_grads<T>(a, x, range, batches);
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

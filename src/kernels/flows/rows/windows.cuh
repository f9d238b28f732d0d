/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * windows.cuh - where the rows of a dispatch go on other ranks: into their receive buffers, which
 * they tell when the operation begins, or into their stages.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_WINDOWS_CUH
#define EPX_KERNELS_FLOWS_ROWS_WINDOWS_CUH

#include "kernels/flows/rows/fields.cuh"
#include "kernels/protocol/ready_words.cuh"

#ifdef __CUDACC__

/* Where the other ranks' receive buffers lie; in shared memory. Of one field the ready words say
 * it. */
template <bool LIST> struct windows {
};
template <> struct windows<true> {
    char *at[EPX_MAX_FIELDS][EPX_MOST_DEVICE_RANKS];
    uint32_t direct[EPX_MOST_DEVICE_RANKS]; /* all fields of the rank can be stored into */
};

static __device__ __forceinline__ bool takes_stores(const struct exchange &x,
                                                    const struct windows<false> &, int32_t rank)
{
    return is_direct(x, rank);
}

static __device__ __forceinline__ bool takes_stores(const struct exchange &,
                                                    const struct windows<true> &w, int32_t rank)
{
    return w.direct[rank];
}

static __device__ __forceinline__ char *window_of(const struct epx_device_comm &c, int32_t segment,
                                                  int32_t rank)
{
    return c.segments[(int64_t)segment * c.num_ranks + rank];
}

static __device__ __forceinline__ char *buffer_on(const struct epx_device_comm &c,
                                                  const struct exchange &x,
                                                  const struct windows<false> &, int32_t,
                                                  int32_t rank)
{
    return window_of(c, (int32_t)ready_word(x, rank, EPX_READY_SEGMENT), rank) +
           ready_long(x, rank, EPX_READY_OFFSET_LOW);
}

static __device__ __forceinline__ char *buffer_on(const struct epx_device_comm &,
                                                  const struct exchange &,
                                                  const struct windows<true> &w, int32_t field,
                                                  int32_t rank)
{
    return w.at[field][rank];
}

/* The three words of a field and rank. */
static __device__ void read_place(const struct epx_device_comm &c, const struct exchange &x,
                                  int32_t field, int32_t rank, uint32_t place[3])
{
    const uint64_t *list =
        epx_control_lists(c.own_control, c.num_ranks, (uint32_t)x.epoch, rank) + 3 * (field - 1);

    for (int32_t i = 0; i < 3; i++)
        place[i] = field ? (uint32_t)load_relaxed_sys(list + i)
                         : ready_word(x, rank, EPX_READY_SEGMENT + i);
}

static __device__ __forceinline__ void
read_windows(const struct epx_dispatch_rows &, const struct exchange &, struct windows<false> &)
{
}

/* The whole block, once all words have come. */
static __device__ void read_windows(const struct epx_dispatch_rows &a, const struct exchange &x,
                                    struct windows<true> &w)
{
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x) {
        uint32_t place[3];

        w.direct[r] = 1;
        for (int32_t f = 0; f < a.fields.num; f++) {
            read_place(a.comm, x, f, r, place);
            w.at[f][r] = NULL;
            if ((int32_t)place[0] < 0)
                w.direct[r] = 0;
            else
                w.at[f][r] = window_of(a.comm, (int32_t)place[0], r) +
                             (int64_t)((uint64_t)place[2] << 32 | place[1]);
        }
    }
    __syncthreads();
}

/* Where a row goes: a rank, its first slot there, -1 if it was dropped, and its place in the stage,
 * counted from the first token of the round. */
struct goal {
    int32_t rank, slot;
    int64_t row_in_stage;
};

/* Where a row of a source lies in the stage of a rank, which has it row_in_stage rows behind the
 * source's first. */
static __device__ __forceinline__ char *staged_row(const struct epx_dispatch_rows &a, int32_t owner,
                                                   int32_t source, int64_t row_in_stage)
{
    return a.plan.stage[owner] +
           ((int64_t)source * a.rounds.tokens + row_in_stage) * a.rounds.pitch;
}

/* Where a piece of a row goes; `at` is where the run of the piece begins in the segment. NULL if
 * the row was dropped. */
template <bool LIST>
static __device__ char *place_at(const struct epx_dispatch_rows &a, const struct exchange &x,
                                 const struct windows<LIST> &w, const struct piece &piece,
                                 const struct goal &goal, int64_t at)
{
    if (goal.slot < 0)
        return NULL;
    if (takes_stores(x, w, goal.rank))
        return buffer_on(a.comm, x, w, piece.field, goal.rank) + goal.slot * piece.row_bytes +
               piece.offset;
    return staged_row(a, goal.rank, a.comm.rank, goal.row_in_stage) + at + piece.ahead;
}

#endif

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sends.cuh - home side of dispatch: each token's row once to every rank that needs it, into its
 * first slot there or into that rank's stage.
 */
#ifndef EPX_KERNELS_DISPATCH_SENDS_CUH
#define EPX_KERNELS_DISPATCH_SENDS_CUH

#include "kernels/dispatch/fields.cuh"

template <bool LIST>
static __device__ bool any_staged(const struct epx_device_comm &c, const struct exchange &x,
                                  const struct windows<LIST> &w)
{
    bool staged = false;

    for (int32_t r = 0; r < c.num_ranks; r++)
        staged = staged || !takes_stores(x, w, r);
    return staged;
}

/* What is sent at once: one segment of the row of each token of the round. */
template <bool LIST> struct sending {
    const struct epx_segments &cut;
    const struct round &round;
    const struct windows<LIST> &windows;
};

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

template <bool LIST>
static __device__ void send_token(const struct epx_dispatch_rows &a, const struct exchange &x,
                                  const struct sending<LIST> &sending, int64_t token,
                                  const struct part &part, struct row_list &list)
{
    int64_t first = token * a.plan.most_rows;
    int64_t offset = epx_segment_offset(sending.cut, sending.round.segment) + part.offset;
    int32_t num = a.plan.token_num[token];

    for_pieces<LIST>(a, offset, part.bytes, [&](const struct piece &piece) {
        for (int32_t i = lane_id(); i < num; i += EPX_WARP) {
            struct goal goal = {a.plan.token_rank[first + i], a.plan.token_slot[first + i],
                                token - sending.round.first_token};

            list.row[i] = place_at(a, x, sending.windows, piece, goal, part.offset);
        }
        __syncwarp();
        store_row(piece.in + token * piece.row_bytes + piece.offset, list, num, piece.bytes);
        __syncwarp();
    });
}

/* Each pair's weight to the rank that the pair travels to, at [source][token][choice]. */
static __device__ void send_weights(const struct epx_dispatch_rows &a)
{
    int64_t pairs = (int64_t)a.num_tokens * a.plan.shape.top_k;
    int64_t mine = (int64_t)a.comm.rank * a.plan.shape.max_tokens * a.plan.shape.top_k;

    for (int64_t p = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; p < pairs;
         p += (int64_t)gridDim.x * blockDim.x)
        if (a.plan.pair_rank[p] >= 0)
            ((float *)(void *)a.plan.weights[a.plan.pair_rank[p]])[mine + p] = a.weights[p];
}

template <bool LIST>
static __device__ void send_rows(const struct epx_dispatch_rows &a, const struct exchange &x,
                                 const struct sending<LIST> &sending, struct row_list &list)
{
    const struct round &round = sending.round;
    int64_t end = round.end_token < a.num_tokens ? round.end_token : a.num_tokens;
    int64_t length = epx_segment_length(sending.cut, round.segment);
    struct epx_slices slices = epx_slices_of(length, end - round.first_token, num_global_warps());

    for (int64_t i = global_warp(); i < (end - round.first_token) * slices.num;
         i += num_global_warps())
        send_token(a, x, sending, round.first_token + i / slices.num,
                   part_of(slices, (int32_t)(i % slices.num), length), list);
}

#endif

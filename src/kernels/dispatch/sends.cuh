/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sends.cuh - home side of dispatch: each token's row once to every rank that needs it, into its
 * first slot there or into that rank's stage.
 */
#ifndef EPX_KERNELS_DISPATCH_SENDS_CUH
#define EPX_KERNELS_DISPATCH_SENDS_CUH

#include "kernels/protocol/records.cuh"

static __device__ bool any_staged(const struct epx_device_comm &c, const struct exchange &x)
{
    bool staged = false;

    for (int32_t r = 0; r < c.num_ranks; r++)
        staged = staged || !is_direct(x, r);
    return staged;
}

/* What is sent at once: one segment of the row of each token of the round. */
struct sending {
    const struct epx_segments &cut;
    const struct round &round;
};

/* The segment's place in a row. */
static __device__ __forceinline__ int64_t offset_of(const struct sending &sending)
{
    return epx_segment_offset(sending.cut, sending.round.segment);
}

/* Where the segment of a token's row goes on a rank; NULL if the row was dropped. */
static __device__ char *place_on(const struct epx_dispatch_rows &a, const struct exchange &x,
                                 const struct sending &sending, int64_t token, int32_t rank,
                                 int32_t slot)
{
    if (slot < 0)
        return NULL;
    if (is_direct(x, rank)) {
        int64_t segment = (int32_t)ready_word(x, rank, EPX_READY_SEGMENT);
        char *window = a.comm.segments[segment * a.comm.num_ranks + rank];

        return window + ready_long(x, rank, EPX_READY_OFFSET_LOW) + slot * sending.cut.row_bytes +
               offset_of(sending);
    }
    return a.plan.stage[rank] +
           ((int64_t)a.comm.rank * a.rounds.tokens + token - sending.round.first_token) *
               a.rounds.pitch;
}

static __device__ void send_token(const struct epx_dispatch_rows &a, const struct exchange &x,
                                  const struct sending &sending, int64_t token,
                                  const struct part &part, struct row_list &list)
{
    int64_t first = token * a.plan.most_rows;
    int32_t num = a.plan.token_num[token];

    for (int32_t i = lane_id(); i < num; i += EPX_WARP) {
        char *place = place_on(a, x, sending, token, a.plan.token_rank[first + i],
                               a.plan.token_slot[first + i]);

        list.row[i] = place ? place + part.offset : NULL;
    }
    __syncwarp();
    store_row(a.rows + token * sending.cut.row_bytes + offset_of(sending) + part.offset, list, num,
              part.bytes);
    __syncwarp();
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

static __device__ void send_rows(const struct epx_dispatch_rows &a, const struct exchange &x,
                                 const struct sending &sending, struct row_list &list)
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

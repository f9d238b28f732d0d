/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dispatch_rounds.cu - a dispatch or combine backward whose stage does not hold all rows: as in
 * agree_by_words.cu, and if a receive buffer of any rank is in no window all rows, round by round:
 * each token's once to every rank that needs it, straight into its first slot if that rank's
 * receive buffer is in a window, else into its stage, from where that rank's blocks copy it to the
 * slot. Pair weights are stored too. Of several fields each is stored on its own; if any receive
 * buffer of a rank is in no window, all its fields take the stage.
 * Work: reads T rows, writes this rank's unique rows. Order: none, every byte has one writer.
 * Launch: comm.blocks blocks, which wait for other ranks. move_rows or move_grads follows.
 */
#include "kernels/flows/rows/windows.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/protocol.cuh"
#include "kernels/protocol/records.cuh"

static __device__ bool any_staged(const struct epx_device_comm &c, const struct exchange &x,
                                  const struct windows<true> &w)
{
    bool staged = false;

    for (int32_t r = 0; r < c.num_ranks; r++)
        staged = staged || !takes_stores(x, w, r);
    return staged;
}

/* What is sent at once: one segment of the row of each token of the round. */
struct sending {
    const struct epx_segments &cut;
    const struct epx_round &round;
    const struct windows<true> &windows;
};

static __device__ void send_token(const struct epx_dispatch_rows &a, const struct exchange &x,
                                  const struct sending &sending, int64_t token,
                                  const struct part &part, struct row_list &list)
{
    int64_t first = token * a.plan.most_rows;
    int64_t offset = epx_segment_offset(sending.cut, sending.round.segment) + part.offset;
    int32_t num = a.plan.token_num[token];

    for_pieces<true>(a, offset, part.bytes, [&](const struct piece &piece) {
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

static __device__ void send_rows(const struct epx_dispatch_rows &a, const struct exchange &x,
                                 const struct sending &sending, struct row_list &list)
{
    const struct epx_round &round = sending.round;
    int64_t end = round.end_token < a.num_tokens ? round.end_token : a.num_tokens;
    int64_t length = epx_segment_length(sending.cut, round.segment);
    struct epx_slices slices = epx_slices_of(length, end - round.first_token, num_global_warps());

    for (int64_t i = global_warp(); i < (end - round.first_token) * slices.num;
         i += num_global_warps())
        send_token(a, x, sending, round.first_token + i / slices.num,
                   part_of(slices, (int32_t)(i % slices.num), length), list);
}

/* Copies a segment of a row that came to the row's first slot. */
static __device__ void take_row(const struct epx_dispatch_rows &a, const struct epx_round &round,
                                struct epx_wire_record *record, const char *came,
                                struct row_list &list)
{
    const struct epx_segments &cut = a.rounds.cut;

    for_pieces<true>(a, epx_segment_offset(cut, round.segment),
                     epx_segment_length(cut, round.segment), [&](const struct piece &piece) {
                         if (lane_id() == 0)
                             list.row[0] = piece.out +
                                           epx_wire_pairs(record)->slot * piece.row_bytes +
                                           piece.offset;
                         __syncwarp();
                         store_row(came + piece.ahead, list, 1, piece.bytes);
                         __syncwarp();
                     });
}

/* Copies each row that came from this rank's stage to the row's first slot. */
static __device__ void take_rows(const struct epx_dispatch_rows &a, const struct epx_round &round,
                                 struct row_list &list)
{
    char *records = a.plan.records[a.comm.rank];

    for (int32_t s = 0; s < a.comm.num_ranks; s++) {
        int64_t end = first_record(a.plan, records, s, round.end_token);

        for (int64_t u = first_record(a.plan, records, s, round.first_token) + global_warp();
             u < end; u += num_global_warps()) {
            struct epx_wire_record *record = epx_wire_record_at(&a.plan, records, s, u);

            if (record->num_slots)
                take_row(a, round, record,
                         staged_row(a, a.comm.rank, s, record->token - round.first_token), list);
        }
    }
}

static __device__ void move_in_rounds(const struct epx_dispatch_rows &a, struct exchange &x,
                                      const struct windows<true> &w, struct row_list &list)
{
    bool takes = !takes_stores(x, w, a.comm.rank);

    if (weights_come(x))
        send_pair_weights(a.comm, a.plan, a.weights, a.num_tokens);
    for (int64_t i = 0; i < a.rounds.num; i++) {
        struct epx_round round = epx_round_of(&a.rounds, i);

        if (i && !await_credits(a.comm, x, (uint64_t)i))
            return;
        send_rows(a, x, sending{a.rounds.cut, round, w}, list);
        signal_arrival(a.comm);
        if (!await_arrivals(a.comm, x, (uint64_t)i + 1))
            return;
        if (takes)
            take_rows(a, round, list);
        if (i + 1 < a.rounds.num)
            signal_credit(a.comm);
    }
}

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    dispatch_rounds(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct windows<true> w;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    int64_t num_rounds = 0;
    bool deferred = true;

    await_kernel_before();
    if (begin_moves(a.comm, a.note, a.fields.num > 1 ? &a.list : NULL, a.plan.outcome, x)) {
        read_windows(a, x, w);
        deferred = !any_staged(a.comm, x, w);
        num_rounds = deferred ? 0 : a.rounds.num;
        if (!deferred)
            move_in_rounds(a, x, w, lists[threadIdx.x / EPX_WARP]);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        hand_over(a.comm, x, (uint64_t)num_rounds, deferred, a.plan.outcome);
}

int epx_launch_dispatch_rounds(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    return launch_behind({(unsigned)args->comm.blocks, EPX_WAITING_THREADS, 0, stream},
                         dispatch_rounds, *args);
}

static const struct epx_loaded loaded(dispatch_rounds);

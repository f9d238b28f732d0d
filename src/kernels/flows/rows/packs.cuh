/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * packs.cuh - dispatch by messages: the rows of a round into the outgoing stage, by rank in the
 * order of records; through relays; from the incoming stage to their first slots.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_PACKS_CUH
#define EPX_KERNELS_FLOWS_ROWS_PACKS_CUH

#include "kernels/flows/rows/fields.cuh"
#include "kernels/protocol/protocol.cuh"
#include "kernels/wires/relays.cuh"

/* Lists where a token's row goes for each of its ranks; NULL = it was dropped, or goes with the row
 * for an earlier rank. */
static __device__ int32_t list_places(const struct epx_dispatch_rows &a,
                                      const struct message_rows &rows, int64_t token,
                                      struct row_list &list)
{
    int32_t num = a.plan.token_num[token];

    for (int32_t i = lane_id(); i < num; i += EPX_WARP)
        list.row[i] = has_message(a.plan, a.comm, token, i)
                          ? row_in_stage(a.plan.outgoing, a.rounds,
                                         row_at_home(a.plan, a.comm, rows, token, i))
                          : NULL;
    __syncwarp();
    return num;
}

static __device__ void pack_weights(const struct epx_dispatch_rows &a, int64_t token,
                                    const struct row_list &list, int32_t num)
{
    int32_t top_k = a.plan.shape.top_k;

    for (int32_t i = lane_id(); i < num * top_k; i += EPX_WARP)
        if (list.row[i / top_k])
            weights_behind(list.row[i / top_k], a.rounds)[i % top_k] =
                a.weights[token * top_k + i % top_k];
    __syncwarp();
}

static __device__ void move_places(struct row_list &list, int32_t num, int64_t offset)
{
    for (int32_t i = lane_id(); i < num; i += EPX_WARP)
        list.row[i] = list.row[i] ? list.row[i] + offset : NULL;
    __syncwarp();
}

/* How many node rows of a token leave this node, as far as this lane counts them. */
static __device__ int32_t count_outside(const struct epx_dispatch_rows &a, int64_t token,
                                        const struct row_list &list, int32_t num)
{
    int32_t outside = 0;

    for (int32_t i = lane_id(); a.plan.nodes.num_nodes && i < num; i += EPX_WARP)
        outside += list.row[i] &&
                   !goes_straight(a.plan, a.comm, a.plan.token_rank[token * a.plan.most_rows + i]);
    return outside;
}

/* Stores a part of a token's segment to the places of the list, which it moves. */
static __device__ void pack_part(const struct epx_dispatch_rows &a, const struct epx_round &round,
                                 int64_t token, const struct part &part, struct row_list &list,
                                 int32_t num)
{
    int64_t moved = 0;

    for_pieces<true>(a, epx_segment_offset(a.rounds.cut, round.segment) + part.offset, part.bytes,
                     [&](const struct piece &piece) {
                         move_places(list, num, part.offset + piece.ahead - moved);
                         moved = part.offset + piece.ahead;
                         store_row(piece.in + token * piece.row_bytes + piece.offset, list, num,
                                   piece.bytes);
                         __syncwarp();
                     });
}

static __device__ void pack_tokens(const struct epx_dispatch_rows &a, const struct epx_round &round,
                                   const struct message_rows &rows, struct row_list &list)
{
    const struct epx_segments &cut = a.rounds.cut;
    int64_t end = round.end_token < a.num_tokens ? round.end_token : a.num_tokens;
    int64_t length = epx_segment_length(cut, round.segment), num = end - round.first_token;
    struct epx_slices slices = epx_slices_of(length, num, num_global_warps());
    bool weighted = a.comm.state->weighted && a.weights && round.segment == 0;
    int32_t outside = 0;

    for (int64_t i = global_warp(); i < num * slices.num; i += num_global_warps()) {
        int64_t token = round.first_token + i / slices.num;
        struct part part = part_of(slices, (int32_t)(i % slices.num), length);
        int32_t places = list_places(a, rows, token, list);

        if (weighted && part.offset == 0)
            pack_weights(a, token, list, places);
        if (round.segment == 0 && part.offset == 0)
            outside += count_outside(a, token, list, places);
        pack_part(a, round, token, part, list, places);
    }
    count_node_rows(a.comm, outside, a.row_bytes);
}

static __device__ void unpack_weights(const struct epx_dispatch_rows &a, int32_t source,
                                      const struct epx_wire_record *record, char *row)
{
    float *to = (float *)(void *)a.plan.weights[a.comm.rank] +
                ((int64_t)source * a.plan.shape.max_tokens + record->token) * a.plan.shape.top_k;
    const float *from = weights_behind(row, a.rounds);

    for (int32_t k = lane_id(); k < a.plan.shape.top_k; k += EPX_WARP)
        to[k] = from[k];
}

static __device__ void unpack_row(const struct epx_dispatch_rows &a, const struct epx_round &round,
                                  const struct part &part, struct epx_wire_record *record,
                                  char *row, struct row_list &list)
{
    int64_t offset = epx_segment_offset(a.rounds.cut, round.segment) + part.offset;

    for_pieces<true>(a, offset, part.bytes, [&](const struct piece &piece) {
        if (lane_id() == 0)
            list.row[0] = piece.out + epx_wire_pairs(record)->slot * piece.row_bytes + piece.offset;
        __syncwarp();
        store_row(row + part.offset + piece.ahead, list, 1, piece.bytes);
        __syncwarp();
    });
}

static __device__ void unpack_records(const struct epx_dispatch_rows &a,
                                      const struct epx_round &round,
                                      const struct message_rows &rows,
                                      const struct record_range &range, struct row_list &list)
{
    char *records = a.plan.records[a.comm.rank];
    int64_t length = epx_segment_length(a.rounds.cut, round.segment);
    struct epx_slices slices = epx_slices_of(length, range.num, num_global_warps());
    bool weighted = a.comm.state->weighted && round.segment == 0;

    for (int64_t i = global_warp(); i < range.num * slices.num; i += num_global_warps()) {
        struct row_source at = find_in_range(range, i / slices.num);
        struct part part = part_of(slices, (int32_t)(i % slices.num), length);
        struct epx_wire_record *record = epx_wire_record_at(&a.plan, records, at.source, at.row);
        char *row = row_in_stage(a.plan.incoming, a.rounds,
                                 rows.expert_at[at.source] + at.row - range.first[at.source]);

        if (record->num_slots == 0)
            continue;
        if (weighted && part.offset == 0)
            unpack_weights(a, at.source, record, row);
        unpack_row(a, round, part, record, row, list);
    }
}

/* The relay's part: node rows that came, with their weights, to the ranks of the node that need
 * them. */
static __device__ void pass_tokens(const struct epx_dispatch_rows &a, const struct epx_round &round,
                                   const struct message_rows &rows, const struct passing &passing,
                                   struct row_list &list)
{
    bool weighted = a.comm.state->weighted && round.segment == 0;
    int64_t bytes = weighted ? a.rounds.pitch
                             : epx_round_up(epx_segment_length(a.rounds.cut, round.segment), 16);
    struct epx_slices slices = epx_slices_of(bytes, passing.num, num_global_warps());

    for (int64_t i = global_warp(); i < (int64_t)passing.num * slices.num;
         i += num_global_warps()) {
        struct node_row at = find_node_row(a.plan.nodes, rows, i / slices.num);
        struct part part = part_of(slices, (int32_t)(i % slices.num), bytes);
        int32_t num = list_ranks(
            a.plan.nodes,
            [&](int32_t index) {
                return place_for_rank(a.plan, a.rounds, passing, a.plan.outgoing, at, index);
            },
            part.offset, list);

        store_row(place_at_relay(a.plan, a.rounds, rows, a.plan.incoming, at) + part.offset, list,
                  num, part.bytes);
        __syncwarp();
    }
}

#endif

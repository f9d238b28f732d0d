/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * small_fields.cuh - rows of several fields in the banks of a small dispatch. A row in a bank is
 * its fields one behind the other, each from a multiple of 16 bytes on, and is cut into slices as
 * if it were of one field; so a slice may have parts of several fields, and it has one flag.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_SMALL_FIELDS_CUH
#define EPX_KERNELS_FLOWS_ROWS_SMALL_FIELDS_CUH

#include "kernels/args/bank_args.h"
#include "kernels/warp/copy_row.cuh"

/* A place in a field: of its row 0 in the users' buffers, of any row in a bank. */
struct field_place {
    const char *in;
    char *out;
    int64_t row_bytes; /* of the field */
    int64_t in_bank;
};

/* The place `offset` bytes into a row of a bank, in a field that begins at `at` there. */
static __device__ __forceinline__ struct field_place place_in(const struct epx_field &field,
                                                              int64_t at, int64_t offset)
{
    return {(const char *)field.in + (offset - at), (char *)field.out + (offset - at), field.bytes,
            offset};
}

/* The place `offset` bytes into a row of a bank, in whichever field has that byte. */
static __device__ __forceinline__ struct field_place find_field(const struct epx_fields &fields,
                                                                int64_t offset)
{
    struct field_place place = place_in(fields.at[0], 0, offset);
    int64_t at = epx_bytes_in_bank(fields.at[0].bytes);

#pragma unroll
    for (int32_t f = 1; f < EPX_MAX_FIELDS; f++) {
        if (f < fields.num && offset >= at)
            place = place_in(fields.at[f], at, offset);
        at += epx_bytes_in_bank(fields.at[f].bytes);
    }
    return place;
}

/* Whether all rows of all fields lie at multiples of 16 bytes, so that a row in a bank has no gaps
 * and each 16 bytes of it are of one field. */
static __device__ __forceinline__ bool are_whole_packs(const struct epx_fields &fields)
{
    uint32_t odd = 0;

#pragma unroll
    for (int32_t f = 0; f < EPX_MAX_FIELDS; f++)
        if (f < fields.num)
            odd |= misalignment(fields.at[f].in) | misalignment(fields.at[f].out) |
                   ((uint32_t)fields.at[f].bytes & 15u);
    return odd == 0;
}

/*
 * The whole warp: moves a slice by 16 bytes a lane, from(place) to to(place, goal) for the goal of
 * every lane that has one, -1 = it has none. Loads of several fields are under way together.
 */
template <typename From, typename To>
static __device__ __forceinline__ void
move_packs(const struct epx_fields &fields, const struct part &part, int64_t goal, From from, To to)
{
    const uint32_t goals = __ballot_sync(~0u, goal >= 0);
    const int64_t end = part.offset + part.bytes;

    for (int64_t first = part.offset; first < end; first += 16 * EPX_WARP * ROW_UNROLL) {
        struct field_place place[ROW_UNROLL];
        uint4 data[ROW_UNROLL];

#pragma unroll
        for (int j = 0; j < ROW_UNROLL; j++) {
            int64_t offset = first + 16 * (j * EPX_WARP + lane_id());

            place[j] = find_field(fields, offset);
            if (offset < end)
                data[j] = *(const uint4 *)(const void *)from(place[j]);
        }
        for (uint32_t left = goals; left; left &= left - 1) {
            int64_t there = __shfl_sync(~0u, goal, __ffs((int32_t)left) - 1);

#pragma unroll
            for (int j = 0; j < ROW_UNROLL; j++)
                if (place[j].in_bank < end)
                    *(uint4 *)(void *)to(place[j], there) = data[j];
        }
    }
}

/* The whole warp: moves a slice field by field, where rows may lie anywhere. */
template <typename From, typename To>
static __device__ __forceinline__ void move_pieces(const struct epx_fields &fields,
                                                   const struct part &part, int64_t goal, From from,
                                                   To to, struct row_list &list)
{
    const uint32_t goals = __ballot_sync(~0u, goal >= 0);
    int64_t at = 0;

    for (int32_t f = 0; f < fields.num; f++) {
        const struct epx_field &field = fields.at[f];
        int64_t first = part.offset > at ? part.offset : at;
        int64_t end = part.offset + part.bytes;
        struct field_place place = place_in(field, at, first);

        end = end < at + field.bytes ? end : at + field.bytes;
        at += epx_bytes_in_bank(field.bytes);
        if (first >= end)
            continue;
        if (goal >= 0)
            list.row[__popc(goals & lanes_below())] = to(place, goal);
        __syncwarp();
        store_row(from(place), list, __popc(goals), end - first);
        __syncwarp();
    }
}

template <typename From, typename To>
static __device__ __forceinline__ void move_fields(const struct epx_fields &fields,
                                                   const struct part &part, int64_t goal, From from,
                                                   To to, struct row_list &list)
{
    if (are_whole_packs(fields))
        move_packs(fields, part, goal, from, to);
    else
        move_pieces(fields, part, goal, from, to, list);
}

/* The whole warp: stores a slice of a token's row to the row of a bank that each lane has, NULL =
 * none. */
static __device__ void store_fields(const struct epx_fields &fields, const struct part &part,
                                    int64_t token, char *row, struct row_list &list)
{
    auto from = [=](const struct field_place &at) { return at.in + token * at.row_bytes; };
    auto to = [](const struct field_place &at, int64_t bank) { return (char *)bank + at.in_bank; };

    move_fields(fields, part, row ? (int64_t)row : -1, from, to, list);
}

/* The whole warp: copies a slice of a row to the slot that each lane has, -1 = none; the row came
 * in a bank, or is that of this rank's token if `came` is NULL. */
static __device__ void take_fields(const struct epx_fields &fields, const struct part &part,
                                   const char *came, int64_t token, int64_t slot,
                                   struct row_list &list)
{
    auto from = [=](const struct field_place &at) {
        return came ? came + at.in_bank : at.in + token * at.row_bytes;
    };
    auto to = [](const struct field_place &at, int64_t to) { return at.out + to * at.row_bytes; };

    move_fields(fields, part, slot, from, to, list);
}

#endif

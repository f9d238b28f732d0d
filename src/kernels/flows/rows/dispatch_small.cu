/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_small.cu - a dispatch of few rows (few_rows.cuh) whose slices come with flags. */
#include "kernels/flows/rows/few_rows.cuh"
#include "kernels/flows/rows/small_rows.cuh"
#include "kernels/protocol/load_kernels.cuh"

/* The slot of the record's row that this lane stores to; -1 = none. */
static __device__ __forceinline__ int64_t slot_of_lane(const struct epx_dispatch_rows &a,
                                                       struct epx_wire_record *record)
{
    int32_t num = a.plan.shape.rank_major ? 1 : record->num_slots;

    return lane_id() < num ? epx_wire_pairs(record)[lane_id()].slot : -1;
}

template <bool LIST_> struct flagged_rows {
    static constexpr bool LIST = LIST_;

    static __device__ void store(const struct epx_dispatch_rows &a, uint64_t epoch,
                                 struct row_list &list)
    {
        store_small_rows<LIST>(a, epoch, list);
    }

    /* The whole warp: one slice of a row to all its slots, and weights with the first. Returns
     * whether the ranks agree and the slice has come. */
    static __device__ bool take(const struct epx_dispatch_rows &a, char *bank,
                                const struct row_slice &at, struct epx_wire_record *record,
                                struct verdict &verdict, struct row_list &list)
    {
        const struct part part = part_of_slice<LIST>(a, at.slice);
        const int32_t num = LIST ? 0 : list_slots(a, part, record, list);

        if (!verdict() ||
            !await_bank_slice(a, bank, verdict.x.epoch, at.source, at.token, at.slice))
            return false;
        if constexpr (LIST)
            take_fields(a.fields, part, bank_that_has(a, bank, at.source, at.token), at.token,
                        slot_of_lane(a, record), list);
        else
            store_row(row_that_came(a, bank, at.source, at.token) + part.offset, list, num,
                      part.bytes);
        if (at.slice == 0 && a.recv_weights && weights_come(verdict.x))
            spread_weights(a, weights_that_came(a, bank, at.source, at.token), record);
        __syncwarp();
        return true;
    }
};

static void (*const kernels[])(struct epx_dispatch_rows) = {
    dispatch_small<struct flagged_rows<false>>, dispatch_small<struct flagged_rows<true>>};

int epx_launch_dispatch_small(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    return launch_phase(small_launch(args->banks, stream), kernels[args->fields.num > 1], *args);
}

static const struct epx_loaded loaded(kernels);

/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_packets.cu - a dispatch of few rows (few_rows.cuh) of one field, in packets. */
#include "kernels/flows/rows/few_rows.cuh"
#include "kernels/flows/rows/small_rows.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/packets.cuh"

/* The whole warp: sends a slice of a token's row to the banks that the lanes have, and with the
 * first slice the weights of its pairs. */
static __device__ void send_slice(const struct epx_dispatch_rows &a, uint64_t epoch,
                                  const struct row_slice &at, char *bank, struct row_list &list)
{
    const struct part part = part_of_slice<false>(a, at.slice);
    const int64_t row = bank_row(a, at.source, at.token);
    const uint32_t goes = __ballot_sync(~0u, bank != NULL), tag = packet_tag(epoch);

    if (bank)
        list.row[__popc(goes & lanes_below())] = packets_in(a.banks, bank, row, at.slice);
    __syncwarp();
    send_packs(a.rows + at.token * a.row_bytes + part.offset, part.bytes / 16, list, __popc(goes),
               tag);
    store_weights(a, at.token, at.slice, bank, [&](char *to, float weight) {
        store_packet(word_packet_in(a.banks, to, row, lane_id()), __float_as_uint(weight), 0, 0,
                     tag);
    });
    __syncwarp();
}

/* The whole warp: lists the weights of a row's choices, of which each lane has one, as they come.
 * Returns whether all came. */
static __device__ bool list_weights(const struct epx_dispatch_rows &a, char *bank, uint32_t tag,
                                    const struct row_slice &at, struct row_list &list)
{
    const struct packet_run from = {
        word_packet_in(a.banks, bank, bank_row(a, at.source, at.token), lane_id()), tag, at.source};
    bool ok = true;

    if (lane_id() < a.plan.shape.top_k)
        ok = take_word(a.comm, from, list.weight[lane_id()]);
    __syncwarp();
    return __all_sync(~0u, ok);
}

/* The Way of few_rows.cuh in which rows come in packets; dispatch_small.cu has the other one. */
struct packed_rows {
    static constexpr bool LIST = false;

    static __device__ void store(const struct epx_dispatch_rows &a, uint64_t epoch,
                                 struct row_list &list)
    {
        const struct crew crew = crew_of(a.banks);
        const uint32_t slices = (uint32_t)a.banks.slices.num;

        for (uint32_t i = (uint32_t)crew.warp; i < (uint32_t)a.num_tokens * slices;
             i += (uint32_t)crew.num) {
            const struct row_slice at = {a.comm.rank, (int32_t)(i / slices), (int32_t)(i % slices)};

            EPX_DELAY(a.comm);
            visit_banks(a, epoch, at.token,
                        [&](char *bank) { send_slice(a, epoch, at, bank, list); });
        }
    }

    static __device__ bool take(const struct epx_dispatch_rows &a, char *bank,
                                const struct row_slice &at, struct epx_wire_record *record,
                                struct verdict &verdict, struct row_list &list)
    {
        const struct part part = part_of_slice<false>(a, at.slice);
        const int32_t num = list_slots(a, part, record, list);
        const uint32_t tag = packet_tag(verdict.x.epoch);
        const bool comes = at.source != a.comm.rank;
        const float *weights =
            comes ? list.weight : weights_that_came(a, bank, at.source, at.token);

        if (!verdict())
            return false;
        if (!comes)
            store_row(a.rows + at.token * a.row_bytes + part.offset, list, num, part.bytes);
        else if (!spread_packs(
                     a.comm,
                     {packets_in(a.banks, bank, bank_row(a, at.source, at.token), at.slice), tag,
                      at.source},
                     part.bytes / 16, list, num))
            return false;
        if (at.slice == 0 && a.recv_weights && weights_come(verdict.x)) {
            if (comes && !list_weights(a, bank, tag, at, list))
                return false;
            spread_weights(a, weights, record);
        }
        __syncwarp();
        return true;
    }
};

/* While each warp has few slices, blocks of half as many threads take less time: the warps of a
 * multiprocessor share what it can issue. */
static unsigned threads_for(const struct epx_dispatch_rows &args)
{
    enum { FEW_SLICES = 4 };
    const unsigned half = EPX_WAITING_THREADS / 2;
    const int64_t rows = (int64_t)args.comm.num_ranks * args.plan.shape.max_tokens;
    const int64_t warps = (int64_t)args.banks.takers * (half / EPX_WARP);

    return rows * args.banks.slices.num <= FEW_SLICES * warps ? half
                                                              : (unsigned)EPX_WAITING_THREADS;
}

int epx_launch_dispatch_packets(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    struct phase_launch launch = small_launch(args->banks, stream);

    launch.threads = threads_for(*args);
    return launch_phase(launch, dispatch_small<struct packed_rows>, *args);
}

static const struct epx_loaded loaded(dispatch_small<struct packed_rows>);

/* SPDX-License-Identifier: BSD-3-Clause */
/* combine_packets.cu - a combine of few rows (few_sums.cuh) whose parts come in packets. */
#include "kernels/flows/sums/few_sums.cuh"
#include "kernels/flows/sums/sum_packets.cuh"
#include "kernels/protocol/load_kernels.cuh"

struct packed_sums {
    template <typename T>
    static __device__ void send(const struct epx_combine_rows &a, uint64_t epoch,
                                const struct sum_slice &at, struct row_list &list)
    {
        char *bank = bank_on(a.comm, a.banks, epoch, at.home);
        const int64_t row = row_of_sum(a, at);
        const struct part part = part_of(a.banks.slices, at.slice, a.row_bytes);
        const struct epx_wire_pair *pairs = epx_wire_pairs(at.record);
        const uint32_t tag = packet_tag(epoch);

        list_pairs<T>(a, part.offset, at.record, list);
        EPX_DELAY(a.comm);
        send_packed_sum<T>(list, at.record->num_slots, multiplies(a), part.bytes / 16,
                           {packets_in(a.banks, bank, row, at.slice), tag, at.home});
        for (int32_t i = lane_id();
             a.backward && a.weights && at.slice == 0 && i < at.record->num_pairs; i += EPX_WARP) {
            const int32_t choice = (int32_t)(pairs[i].expert_choice & 255);

            store_packet(word_packet_in(a.banks, bank, row, choice),
                         __float_as_uint(grad_of_weight(a, pairs[i].slot, choice)), 0, 0, tag);
        }
        __syncwarp();
    }

    template <typename T>
    static __device__ bool add(const struct banked_places &places, const struct slice_of_token &at,
                               int64_t bytes, char *out, struct verdict &verdict)
    {
        const struct coming_parts parts = {places.a.comm, at.list, packet_tag(verdict.x.epoch)};

        list_coming_parts(places, at, [&](int64_t row) {
            return packets_in(places.a.banks, places.bank, row, at.slice);
        });
        return add_packets<T>(parts, multiplies(places.a), bytes / 16, out, verdict);
    }

    /* The whole warp, a pair a lane. */
    static __device__ bool take_weights(const struct banked_places &places, int64_t token,
                                        uint64_t epoch)
    {
        const struct epx_combine_rows &a = places.a;
        const int32_t k = lane_id(), top_k = a.plan.shape.top_k;
        const int64_t pair = token * top_k + k;
        const int32_t rank = k < top_k ? a.plan.pair_rank[pair] : -1;
        float weight = 0;
        bool ok = true;

        if (rank == a.comm.rank)
            weight = grad_of_weight(a, a.plan.view.slots[pair], k);
        else if (rank >= 0)
            ok = take_word(a.comm,
                           {word_packet_in(a.banks, places.bank, places.row_of_pair(token, k), k),
                            packet_tag(epoch), rank},
                           weight);
        if (ok && k < top_k)
            a.grad_weights[pair] = weight;
        return __all_sync(~0u, ok);
    }
};

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    combine_packets(const __grid_constant__ struct epx_combine_rows a)
{
    combine_few<T, struct packed_sums>(a);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) =
    SUM_KERNELS(combine_packets);

int epx_launch_combine_packets(const struct epx_combine_rows *args, EPX_Stream stream)
{
    return launch_phase(small_launch(args->banks, stream), kernels[epx_sum_kernel(args)], *args);
}

static const struct epx_loaded loaded(kernels);

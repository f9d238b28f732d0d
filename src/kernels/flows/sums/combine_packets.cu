/* SPDX-License-Identifier: BSD-3-Clause */
/* combine_packets.cu - a combine of few rows (few_sums.cuh) whose parts come in packets. */
#include "kernels/flows/sums/few_sums.cuh"
#include "kernels/flows/sums/sum_packets.cuh"
#include "kernels/protocol/load_kernels.cuh"

struct packed_sums : packet_wire {
    template <typename T>
    static __device__ __forceinline__ void send_sum(const struct row_list &list, int32_t num,
                                                    bool weighted, int64_t bytes,
                                                    const struct bank_slice &to, struct stamp stamp)
    {
        send_packed_sum<T>(list, num, weighted, bytes / 16, place(to), (uint32_t)stamp.value);
    }

    template <typename T>
    static __device__ __forceinline__ bool add_sum(const struct banked_places &places,
                                                   const struct slice_of_token &at, int64_t bytes,
                                                   char *out, struct verdict &verdict)
    {
        const struct coming_parts parts = {places.a.comm, at.list, packet_tag(verdict.x.epoch)};

        list_coming_parts<struct packet_wire>(places, at);
        return add_packets<T>(parts, multiplies(places.a), bytes / 16, out, verdict);
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

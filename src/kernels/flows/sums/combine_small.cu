/* SPDX-License-Identifier: BSD-3-Clause */
/* combine_small.cu - a combine of few rows (few_sums.cuh) whose parts come with flags. */
#include "kernels/flows/sums/few_sums.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/slice_flags.cuh"

/* A warp's part of the block's dynamic shared memory. */
static __device__ __forceinline__ char *kept_room_of_warp()
{
    extern __shared__ __align__(16) char rooms[];

    return rooms + threadIdx.x / EPX_WARP * KEPT_BYTES;
}

/* Waits for the slices of a token's parts that come from other ranks: the whole warp, of which each
 * lane has a part, flag NULL = none. */
struct awaited_parts {
    char *room; /* for packs of the own part */
    const struct epx_device_comm &c;
    uint64_t epoch;
    int32_t num_parts, rank;
    const uint64_t *flag;

    __device__ bool operator()() const
    {
        return num_parts == 0 || acquire_words(c, !flag || await_flag(c, flag, epoch, rank));
    }
};

struct flagged_sums : flag_wire {
    template <typename T>
    static __device__ __forceinline__ void send_sum(const struct row_list &list, int32_t num,
                                                    bool weighted, int64_t bytes,
                                                    const struct bank_slice &to, struct stamp)
    {
        sum_rows<typename T::row, typename T::part, SHIFTED_IF_ODD, MOST_SUM_ROWS>(
            list, num, weighted, bytes / (int64_t)sizeof(typename T::part), place(to));
    }

    template <typename T>
    static __device__ __forceinline__ bool add_sum(const struct banked_places &places,
                                                   const struct slice_of_token &at, int64_t bytes,
                                                   char *out, struct verdict &verdict)
    {
        const struct coming_part part = list_coming_parts<struct flag_wire>(places, at);
        const struct awaited_parts await = {
            kept_room_of_warp(),
            places.a.comm,
            verdict.x.epoch,
            at.list.num_parts,
            part.rank,
            part.row < 0 ? NULL : flag_of({places.a.banks, places.bank, part.row, at.slice})};

        return verdict() && add_parts<T>(at.list, multiplies(places.a),
                                         bytes / (int64_t)sizeof(typename T::part), out, await);
    }
};

enum { ROOM_BYTES = EPX_WAITING_THREADS / EPX_WARP * KEPT_BYTES };

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS, 1)
    combine_small(const __grid_constant__ struct epx_combine_rows a)
{
    combine_few<T, struct flagged_sums>(a);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(combine_small);

int epx_launch_combine_small(const struct epx_combine_rows *args, EPX_Stream stream)
{
    struct phase_launch launch = small_launch(args->banks, stream);

    launch.shared_bytes = ROOM_BYTES;
    return launch_phase(launch, kernels[epx_sum_kernel(args)], *args);
}

static const struct epx_loaded loaded(kernels, ROOM_BYTES);

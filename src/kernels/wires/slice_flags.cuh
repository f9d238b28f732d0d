/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slice_flags.cuh - the wire on which a slice is stored into a bank as it is, and a flag tells of
 * it. banks.cuh has the protocol of flags.
 */
#ifndef EPX_KERNELS_WIRES_SLICE_FLAGS_CUH
#define EPX_KERNELS_WIRES_SLICE_FLAGS_CUH

#include "kernels/wires/banks.cuh"
#include "kernels/wires/wire.cuh"

static __device__ __forceinline__ uint64_t *flag_of(const struct bank_slice &at)
{
    return (uint64_t *)(void *)at.bank + at.row * at.banks.slices.num + at.slice;
}

/* One lane: waits for a flag, of which the others of the warp may then read. The caller calls
 * acquire_words behind its last flag. */
static __device__ bool await_flag(const struct epx_device_comm &c, const uint64_t *flag,
                                  uint64_t epoch, int32_t source)
{
    struct patience patience = {0, 0};

    while (load_relaxed_sys(flag) < epoch)
        if (!keep_waiting(c, patience, source))
            return false;
    return true;
}

struct flag_wire {
    static constexpr bool TELLS = true;

    static __device__ __forceinline__ struct stamp stamp_of(uint64_t epoch)
    {
        return {epoch};
    }

    static __device__ __forceinline__ char *place(const struct bank_slice &at)
    {
        return row_in(at.banks, at.bank, at.row) + at.slice * at.banks.slices.bytes;
    }

    static __device__ __forceinline__ void send_copy(const char *from, int64_t bytes,
                                                     const struct row_list &places, int32_t num,
                                                     struct stamp)
    {
        store_row(from, places, num, bytes);
    }

    static __device__ __forceinline__ void send_word(const struct bank_slice &to, int32_t word,
                                                     float value, struct stamp)
    {
        words_in(to.banks, to.bank, to.row)[word] = value;
    }

    static __device__ __forceinline__ void tell(const struct epx_device_comm &c,
                                                const struct bank_slice &to, struct stamp stamp)
    {
        EPX_DELAY(c);
        store_relaxed_sys(flag_of(to), stamp.value);
        EPX_DELAY(c);
    }

    /* Waits for a slice: it can be read where it lies. */
    static __device__ __forceinline__ bool await(const struct epx_device_comm &c,
                                                 const struct coming_slice &from)
    {
        bool ok = true;

        if (lane_id() == 0)
            ok = await_flag(c, flag_of(from.at), from.stamp.value, from.source);
        return acquire_words(c, ok);
    }

    static __device__ __forceinline__ bool spread(const struct epx_device_comm &c,
                                                  const struct coming_slice &from, int64_t bytes,
                                                  const struct row_list &places, int32_t num)
    {
        if (!await(c, from))
            return false;
        store_row(place(from.at), places, num, bytes);
        return true;
    }

    static __device__ __forceinline__ bool take_word(const struct epx_device_comm &,
                                                     const struct coming_slice &from, int32_t word,
                                                     float &value)
    {
        value = words_in(from.at.banks, from.at.bank, from.at.row)[word];
        return true;
    }
};

template struct checked_wire<struct flag_wire>;

#endif

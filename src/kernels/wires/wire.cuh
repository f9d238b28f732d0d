/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wire.cuh - what a wire is: how slices of rows get into the banks (banks.cuh) of other ranks, and
 * out of them. slice_flags.cuh and packets.cuh have one each. Flows take a wire as a template
 * argument: what they send and take is theirs, how it travels is the wire's. Whole warps call a
 * wire, single lanes its words and tell().
 *
 *   stamp_of()   what tells slices of an operation from those of others, given its number
 *   place()      where a slice lies in its bank
 *   send_copy()  stores a slice of a row to several places, of which none is NULL
 *   send_word()  a word that goes with the row of a slice
 *   tell()       tells of a slice that is stored; called behind a fence, and only if TELLS
 *   spread()     waits for a slice and stores it to several places; returns whether it came
 *   take_word()  a word that goes with the row, once spread() has taken a row's first slice;
 *                returns whether it came
 *
 * few_sums.cuh has what a wire for sums has too. Rows of several fields go by wires that tell, as
 * they lie in the bank as they were sent: such a wire has await(), which waits for a slice.
 */
#ifndef EPX_KERNELS_WIRES_WIRE_CUH
#define EPX_KERNELS_WIRES_WIRE_CUH

#include "kernels/args/bank_args.h"
#include "kernels/args/device_comm.h"
#include "kernels/warp/copy_row.cuh"
#include "kernels/policy.cuh"

/* A slice of a row of a bank. */
struct bank_slice {
    const struct epx_banks &banks;
    char *bank;
    int64_t row;
    int32_t slice;
};

/* What stamp_of() returns; an operation's number is none. */
struct stamp {
    uint64_t value;
};

/* A slice of a row that comes from a rank in the operation that has the stamp. */
struct coming_slice {
    struct bank_slice at;
    struct stamp stamp;
    int32_t source;
};

/* Stands beside each wire. */
template <typename Wire> struct checked_wire {
    static constexpr bool TELLS = Wire::TELLS;

    EPX_HAS(Wire, stamp_of, struct stamp (*)(uint64_t));
    EPX_HAS(Wire, place, char *(*)(const struct bank_slice &));
    EPX_HAS(Wire, send_copy,
            void (*)(const char *, int64_t, const struct row_list &, int32_t, struct stamp));
    EPX_HAS(Wire, send_word, void (*)(const struct bank_slice &, int32_t, float, struct stamp));
    EPX_HAS(Wire, tell,
            void (*)(const struct epx_device_comm &, const struct bank_slice &, struct stamp));
    EPX_HAS(Wire, spread,
            bool (*)(const struct epx_device_comm &, const struct coming_slice &, int64_t,
                     const struct row_list &, int32_t));
    EPX_HAS(Wire, take_word,
            bool (*)(const struct epx_device_comm &, const struct coming_slice &, int32_t,
                     float &));
};

#endif

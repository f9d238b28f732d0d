/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sum_rounds.cuh - a combine or dispatch backward in rounds, where ranks store into each other's
 * memory: the sum of each row's pairs, rounded once, goes straight into the home rank's stage at
 * the row's place, and home sums the tokens of the round.
 */
#ifndef EPX_KERNELS_FLOWS_SUMS_SUM_ROUNDS_CUH
#define EPX_KERNELS_FLOWS_SUMS_SUM_ROUNDS_CUH

#include "kernels/flows/sums/sums.cuh"
#include "kernels/protocol/protocol.cuh"

#ifdef __CUDACC__

/* All blocks of a kernel that has comm.blocks of them; of this operation so many rounds have
 * arrived before. */
template <typename T, typename Sums, typename Places>
static __device__ void sum_in_rounds(const struct epx_combine_rows &a, struct exchange &x,
                                     uint64_t before, struct row_list &list)
{
    bool weighted = a.backward && weights_come(x);

    for (int64_t i = 0; i < a.rounds.num; i++) {
        struct epx_round round = epx_round_of(&a.rounds, i);

        if (i && !await_credits(a.comm, x, (uint64_t)i))
            return;
        send_sums<T>(a, Places{a, round}, weighted, list);
        signal_arrival(a.comm);
        if (!await_arrivals(a.comm, x, before + (uint64_t)i + 1))
            return;
        sum_tokens<T, Sums>(a, Places{a, round}, weighted, list);
        if (i + 1 < a.rounds.num)
            signal_credit(a.comm);
    }
}

#endif

#endif

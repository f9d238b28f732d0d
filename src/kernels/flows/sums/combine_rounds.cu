/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_rounds.cu - a combine or dispatch backward whose stage does not hold all rows: as in
 * agree_by_words.cu, then rounds (sum_rounds.cuh).
 * Work: reads the rows of all pairs here, writes this rank's unique rows and T rows. Order:
 * choices, then ranks.
 * Launch: comm.blocks blocks, which wait for other ranks. move_sums ends the operation.
 */
#include "kernels/flows/sums/sum_rounds.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    combine_rounds(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    int64_t num_rounds = 0;

    await_kernel_before();
    if (begin_moves(a.comm, a.note, NULL, a.plan.outcome, x)) {
        num_rounds = a.rounds.num;
        sum_in_rounds<T, struct plain_sums, struct stored_places>(a, x, 0,
                                                                  lists[threadIdx.x / EPX_WARP]);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        hand_over(a.comm, x, (uint64_t)num_rounds, false, a.plan.outcome);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) =
    SUM_KERNELS(combine_rounds);

int epx_launch_combine_rounds(const struct epx_combine_rows *args, EPX_Stream stream)
{
    return launch_behind({(unsigned)args->comm.blocks, EPX_WAITING_THREADS, 0, stream},
                         kernels[epx_sum_kernel(args)], *args);
}

static const struct epx_loaded loaded(kernels);

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_rows.cu - the ranks agree on a combine or dispatch backward. move_sums does the rest,
 * unless the stage does not hold all rows. Then there are rounds (sum_rounds.cuh).
 * Work: reads the rows of all pairs here, writes this rank's unique rows and T rows. Order:
 * choices, then ranks.
 * Launch: comm.blocks blocks, which wait for other ranks; one where there are no rounds. move_sums
 * follows.
 */
#include "kernels/flows/sums/sum_rounds.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"

template <typename T>
static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    combine_rows(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    const bool deferred = a.rounds.num == 1;
    int64_t num_rounds = 0;

    await_kernel_before();
    begin_exchange(a.comm, a.note, a.plan.outcome->code, look_first(a.comm), x);
    if (x.outcome.code == EPX_SUCCESS && await_ready(a.comm, a.note, x, a.plan.outcome)) {
        num_rounds = deferred ? 0 : a.rounds.num;
        if (!deferred)
            sum_in_rounds<T, struct plain_sums, struct stored_places>(
                a, x, 0, lists[threadIdx.x / EPX_WARP]);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        hand_over(a.comm, x, (uint64_t)num_rounds, deferred, a.plan.outcome);
}

static void (*const kernels[NUM_SUM_KERNELS])(struct epx_combine_rows) = SUM_KERNELS(combine_rows);

int epx_launch_combine_rows(const struct epx_combine_rows *args, EPX_Stream stream)
{
    const unsigned blocks = args->rounds.num == 1 ? 1 : (unsigned)args->comm.blocks;

    return launch_behind({blocks, EPX_WAITING_THREADS, 0, stream}, kernels[epx_sum_kernel(args)],
                         *args);
}

static const struct epx_loaded loaded(kernels);

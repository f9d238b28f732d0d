/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * announce_end.cu - a host gives up: its reason goes into its own control window, then the abort
 * word is decided as kernels do. Waits for nothing.
 * Reads reason, pinned; writes reason of its own control window, abort of all ranks, and verdict,
 * pinned. Order: the reason, a fence, the abort word; hosts that see the word copy the reason.
 * Launch: one warp.
 */
#include "kernels/args/control_args.h"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/protocol/waits.cuh"

static __global__ void announce_end(const __grid_constant__ struct epx_announce_end a)
{
    char *own = a.comm.control[a.comm.rank];
    char *reason = epx_control_reason(own, a.comm.num_ranks);

    for (int32_t i = lane_id(); i < EPX_MAX_ERROR_STRING; i += EPX_WARP)
        reason[i] = a.reason[i];
    __syncwarp();
    if (lane_id() == 0) {
        fence_sys();
        give_up(a.comm, EPX_ABORT_BY_HOST, a.comm.rank);
        store_relaxed_sys(a.verdict, load_relaxed_sys(abort_word(a.comm, a.comm.rank)));
    }
}

int epx_launch_announce_end(const struct epx_announce_end *args, EPX_Stream stream)
{
    announce_end<<<1, EPX_WARP, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(announce_end);

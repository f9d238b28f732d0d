/* SPDX-License-Identifier: BSD-3-Clause */
/* dispatch_packets.cu - a dispatch of few rows (few_rows.cuh) of one field, in packets. */
#include "kernels/flows/rows/few_rows.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/packets.cuh"

/* While each warp has few slices, blocks of half as many threads take less time: the warps of a
 * multiprocessor share what it can issue. */
static unsigned threads_for(const struct epx_dispatch_rows &args)
{
    enum { FEW_SLICES = 4 };
    const unsigned half = EPX_WAITING_THREADS / 2;
    const int64_t rows = (int64_t)args.comm.num_ranks * args.plan.shape.max_tokens;
    const int64_t warps = (int64_t)args.banks.receivers * (half / EPX_WARP);

    return rows * args.banks.slices.num <= FEW_SLICES * warps ? half
                                                              : (unsigned)EPX_WAITING_THREADS;
}

int epx_launch_dispatch_packets(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    struct phase_launch launch = small_launch(args->banks, stream);

    launch.threads = threads_for(*args);
    return launch_phase(launch, dispatch_small<struct packet_wire, false>, *args);
}

static const struct epx_loaded loaded(dispatch_small<struct packet_wire, false>);

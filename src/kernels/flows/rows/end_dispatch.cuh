/* SPDX-License-Identifier: BSD-3-Clause */
/* end_dispatch.cuh - how the last kernel of a dispatch or combine backward ends. */
#ifndef EPX_KERNELS_FLOWS_ROWS_END_DISPATCH_CUH
#define EPX_KERNELS_FLOWS_ROWS_END_DISPATCH_CUH

#include "kernels/args/row_args.h"
#include "kernels/protocol/phases.cuh"

/* The last step of a dispatch or combine backward of several kernels, in each block of the last. */
static __device__ void end_dispatch(const struct epx_dispatch_rows &a, bool on)
{
    if (!is_last_mover(a.comm, a.movers))
        return;
    if (on)
        count_route_rows(a.comm, a.plan, a.plan.send_rows, a.row_bytes);
    end_operation(a.comm, *a.plan.view.arrived_rows);
}

#endif

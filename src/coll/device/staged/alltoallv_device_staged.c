/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv_device_staged.c - alltoallv on device memory by messages, from buffer to buffer, among
 * all ranks and along the edges of a graph. */
#include "coll/device/device_verbs.h"
#include "transport/cuda/cuda_errors.h"

int epx_alltoallv_device_staged(const struct epx_request *request)
{
    struct epx_alltoallv_rows args = epx_alltoallv_args_of(request);

    EPX_TRY_LAUNCH(epx_launch_alltoallv_messages(&args, request->call.stream));
    return EPX_SUCCESS;
}

int epx_neighbor_device_staged(const struct epx_request *request)
{
    struct epx_neighbor_rows args = epx_neighbor_args_of(request);

    EPX_TRY_LAUNCH(epx_launch_neighbor_messages(&args, request->call.stream));
    return EPX_SUCCESS;
}

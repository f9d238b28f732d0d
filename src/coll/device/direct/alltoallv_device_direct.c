/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv_device_direct.c - alltoallv on device memory: counts are read by the kernel alone. */
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/operation_args.h"
#include "transport/cuda/cuda_errors.h"

struct epx_alltoallv_rows epx_alltoallv_args_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_device *device = epx_device_of(request);
    int32_t ranks = request->comm->size;
    struct epx_alltoallv_rows args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .stage = device->stage,
        .stage_bytes = device->stage_bytes,
        .row_bytes = call->row_bytes,
        .rows = call->rows_in,
        .sendcounts = call->sendcounts,
        .sdispls = call->sdispls,
        .recv = call->rows_out,
        .recvcounts = call->recvcounts,
        .rdispls = call->rdispls,
        .recv_capacity = call->recv_capacity,
        .packed_rows = call->row_bytes ? epx_most_packed(ranks) / call->row_bytes : INT64_MAX,
        .bank_words = epx_packet_words(ranks),
    };

    return args;
}

int epx_alltoallv_device_direct(const struct epx_request *request)
{
    struct epx_alltoallv_rows args = epx_alltoallv_args_of(request);

    EPX_TRY_LAUNCH(epx_launch_alltoallv_rows(&args, request->call.stream));
    return EPX_SUCCESS;
}

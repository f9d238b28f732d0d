/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv_device_direct.c - alltoallv on device memory, among all ranks and along the edges of a
 * graph: counts are read by the kernel alone. */
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/graph/device_graph.h"
#include "coll/device/operation_args.h"
#include "coll/device/user_memory.h"
#include "transport/cuda/cuda_errors.h"

/* The rows that sendbuf can have, as only the kernel knows how many it has. */
static int64_t send_rows(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;

    if (call->row_bytes == 0)
        return INT64_MAX;
    return call->fields.at[0].in
               ? epx_user_memory_bytes(epx_device_of(request), call->fields.at[0].in) /
                     call->row_bytes
               : 0;
}

struct epx_alltoallv_rows epx_alltoallv_args_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_device *device = epx_device_of(request);
    int32_t ranks = request->comm->size;
    struct epx_alltoallv_rows args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .stage = device->stage,
        .stage_bytes = device->gpu.stage_bytes,
        .row_bytes = call->row_bytes,
        .rows = call->fields.at[0].in,
        .send_rows = send_rows(request),
        .sendcounts = call->sendcounts,
        .sdispls = call->sdispls,
        .recv = call->fields.at[0].out,
        .recvcounts = call->recvcounts,
        .rdispls = call->rdispls,
        .recv_capacity = call->recv_capacity,
        .packed_rows = call->row_bytes ? epx_most_packed(ranks) / call->row_bytes : INT64_MAX,
        .packet_words = epx_packet_words(ranks),
    };

    return args;
}

int epx_alltoallv_device_direct(const struct epx_request *request)
{
    struct epx_alltoallv_rows args = epx_alltoallv_args_of(request);

    EPX_TRY_LAUNCH(epx_launch_alltoallv_rows(&args, request->call.stream));
    return EPX_SUCCESS;
}

int epx_neighbor_device_direct(const struct epx_request *request)
{
    struct epx_neighbor_rows args = epx_neighbor_args_of(request);

    EPX_TRY_LAUNCH(epx_launch_neighbor_rows(&args, request->call.stream));
    return EPX_SUCCESS;
}

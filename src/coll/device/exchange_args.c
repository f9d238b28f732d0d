/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange_args.c - what the kernels of an alltoallv and of an exchange along edges are given. */
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/graph/device_graph.h"
#include "coll/device/operation_args.h"
#include "coll/device/user_memory.h"

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

/* Edges between the same two ranks share the room that packets of a rank have. */
struct epx_neighbor_rows epx_neighbor_args_of(const struct epx_request *request)
{
    const struct epx_device_graph *graph = request->call.graph->device_graph;
    const int32_t turns = graph->most_turns ? graph->most_turns : 1;
    const int64_t row_bytes = request->call.row_bytes;
    const int64_t packed = epx_most_packed(request->comm->size) / turns / 16 * 16;
    struct epx_neighbor_rows args = {
        .rows = epx_alltoallv_args_of(request),
        .sources = graph->sources,
        .destinations = graph->destinations,
        .most_sources = graph->most_sources,
        .most_turns = graph->most_turns,
        .edge_packets = packed / 4,
    };

    args.rows.packed_rows = row_bytes ? packed / row_bytes : INT64_MAX;
    return args;
}

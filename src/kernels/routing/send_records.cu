/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * send_records.cu - a routing by messages, second step: with the whole count matrix every rank
 * finds out whether there is room everywhere, then posts the exchange of the records and, behind
 * them, of the entries for relays. If there is no room it ends the routing with an empty view.
 * Launch: one block.
 */
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/routing/routing_steps.cuh"
#include "kernels/wires/message_rows.cuh"
#include "kernels/wires/messages.cuh"

/* Records from a source for a rank, and the entries of its node rows if it is their relay. */
static __device__ int64_t record_bytes_for(const struct epx_route_tokens &a, int32_t source,
                                           int32_t rank, bool relayed)
{
    int64_t bytes = num_records(a.plan, a.comm, source, rank) * a.plan.record_bytes;

    if (relayed)
        bytes += num_node_rows(a.plan, a.comm, source, a.comm.node[rank]) *
                 (int64_t)epx_entry_bytes(a.plan.shape.top_k);
    return bytes;
}

static __device__ void post_records(const struct epx_route_tokens &a)
{
    const struct epx_device_nodes &nodes = a.plan.nodes;
    int32_t me = a.comm.rank;

    post_exchange(a.comm, a.plan.outgoing_records, a.plan.records[me], [&](int32_t r) {
        bool far = !goes_straight(a.plan, a.comm, r);
        int64_t at = r * a.plan.record_share;

        if (r == me)
            return epx_message{at, 0, at, 0};
        return epx_message{at, record_bytes_for(a, me, r, far && nodes.relay[a.comm.node[r]] == r),
                           at, record_bytes_for(a, r, me, far && nodes.serves[r] >= 0)};
    });
}

static __global__ void __launch_bounds__(ROUTING_THREADS)
    send_records(const __grid_constant__ struct epx_route_tokens a)
{
    __shared__ struct rank_table table;
    __shared__ struct offsets o;

    if (!is_on(a.comm))
        return;
    look_up(a, NULL, table);
    if (threadIdx.x == 0) {
        o.base = a.plan.base;
        o.from = a.plan.from;
    }
    read_matrix(a, NULL, o);
    find_offsets(a, table, o);
    if (o.short_rank < 0 || a.plan.shape.drops) {
        post_records(a);
        return;
    }
    empty_view(a, o);
    if (threadIdx.x == 0)
        a.comm.state->outcome = outcome_short(a, table, o);
}

int epx_launch_send_records(const struct epx_route_tokens *args, EPX_Stream stream)
{
    send_records<<<1, ROUTING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(send_records);

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * send_records.cu - a routing by messages, second step: with the whole count matrix every rank
 * finds out whether there is room everywhere, then posts the exchange of the records.
 * Launch: one block.
 */
#include "routing.cuh"

#include "exchange.cuh"

static __device__ void post_records(const struct epx_route_tokens &a, const struct offsets &o)
{
    int64_t share = (int64_t)a.plan.max_tokens * a.plan.record_bytes;
    char *own = a.plan.records[a.comm.rank];

    post_exchange(a.comm, a.plan.outgoing_records, own, [&](int32_t r) {
        int64_t to = counts_from(a, o, a.comm.rank)[a.plan.num_experts + r];
        int64_t from = counts_from(a, o, r)[a.plan.num_experts + a.comm.rank];
        int64_t other = r != a.comm.rank;

        return epx_message{r * share, other * to * a.plan.record_bytes, r * share,
                           other * from * a.plan.record_bytes};
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
    if (o.short_rank < 0 || a.plan.drops) {
        post_records(a, o);
        return;
    }
    show_counts(a, o);
    if (threadIdx.x == 0)
        a.comm.state->outcome = outcome_short(o);
}

int epx_launch_send_records(const struct epx_route_tokens *args, EPX_Stream stream)
{
    send_records<<<1, ROUTING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

int epx_load_send_records(void)
{
    cudaFuncAttributes attributes;

    return epx_cuda_status(cudaFuncGetAttributes(&attributes, send_records));
}

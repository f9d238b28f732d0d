/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spread_rows.cu - after dispatch_rows: each row from its first slot to its other slots, pair
 * weights to their rows, zeros to padding rows.
 * Work: reads rows that have several slots, writes their copies. Order: none.
 * Launch: the whole device, waits for nothing; ends the operation.
 */
#include "records.cuh"

static __device__ void spread_row(const struct epx_dispatch_rows &a, const struct part &part,
                                  struct epx_wire_record *record, struct row_list &list)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    int32_t num = a.plan.rank_major ? 1 : record->num_slots;

    if (num < 2)
        return;
    for (int32_t i = lane_id(); i < num - 1; i += EPX_WARP)
        list.row[i] = a.recv + pairs[i + 1].slot * a.row_bytes + part.offset;
    __syncwarp();
    store_row(a.recv + pairs[0].slot * a.row_bytes + part.offset, list, num - 1, part.bytes);
    __syncwarp();
}

static __device__ void spread_weights(const struct epx_dispatch_rows &a, int32_t source,
                                      struct epx_wire_record *record)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    const float *weights = (const float *)(const void *)a.plan.weights[a.comm.rank] +
                           ((int64_t)source * a.plan.max_tokens + record->token) * a.plan.top_k;
    float *wide = a.recv_weights + (int64_t)pairs[0].slot * a.plan.top_k;

    for (int32_t k = lane_id(); a.plan.rank_major && k < a.plan.top_k; k += EPX_WARP)
        wide[k] = 0;
    __syncwarp();
    for (int32_t i = lane_id(); i < record->num_pairs; i += EPX_WARP) {
        uint32_t choice = pairs[i].expert_choice & 255;

        if (a.plan.rank_major)
            wide[choice] = weights[choice];
        else
            a.recv_weights[pairs[i].slot] = weights[choice];
    }
}

static __device__ void spread_records(const struct epx_dispatch_rows &a, struct row_list &list,
                                      bool weighted)
{
    char *records = a.plan.records[a.comm.rank];
    struct epx_slices slices = epx_slices_of(
        a.row_bytes, num_records(a.plan, a.comm.num_ranks), num_global_warps());

    for (int64_t i = global_warp();; i += num_global_warps()) {
        struct row_source at = find_record(a.plan, a.comm.num_ranks, i / slices.num);
        struct part part = part_of(slices, (int32_t)(i % slices.num), a.row_bytes);
        struct epx_wire_record *record;

        if (at.source == a.comm.num_ranks)
            return;
        record = epx_wire_record_at(&a.plan, records, at.source, at.row);
        if (record->num_slots == 0)
            continue;
        if (part.bytes)
            spread_row(a, part, record, list);
        if (weighted && part.offset == 0)
            spread_weights(a, at.source, record);
    }
}

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    spread_rows(const __grid_constant__ struct epx_dispatch_rows a)
{
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    bool on = is_on(a.comm), weighted = a.comm.state->weighted && a.recv_weights;

    if (on) {
        spread_records(a, lists[threadIdx.x / EPX_WARP], weighted);
        zero_padding(a.plan, a.recv, a.row_bytes, weighted ? a.recv_weights : NULL);
    }
    if (!is_last_block(a.comm) || threadIdx.x)
        return;
    if (on)
        count_rows(a.comm, a.plan.send_rows, a.row_bytes);
    end_operation(a.comm, a.comm.state->rounds, *a.plan.num_rows, a.comm.state->outcome);
}

int epx_launch_spread_rows(const struct epx_dispatch_rows *args, EPX_Stream stream)
{
    unsigned blocks = epx_blocks_for_rows((int64_t)args->plan.max_tokens * args->comm.num_ranks);

    spread_rows<<<blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

int epx_load_spread_rows(void)
{
    cudaFuncAttributes attributes;

    return epx_cuda_status(cudaFuncGetAttributes(&attributes, spread_rows));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * find_slots.cu - a routing by messages, last step: with the count matrix and the records of all
 * ranks indices become slots.
 * Work: max_tokens * top_k + records here + ranks * experts in every block. Order: none.
 * Launch: comm.blocks blocks, waits for nothing; ends the operation.
 */
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/routing/routing_steps.cuh"
#include "kernels/routing/slots.cuh"

/* Numbers the rows of tokens, so that dispatch and combine find their places in messages. */
static __device__ void number_rows(const struct epx_route_tokens &a)
{
    const struct epx_device_plan &plan = a.plan;
    int64_t pairs = (int64_t)a.num_tokens * plan.shape.top_k;

    for (int64_t p = routing_thread(a); p < pairs; p += num_routing_threads(a)) {
        struct epx_device_pair pair = load_pair(plan, p);
        int64_t token = p / plan.shape.top_k;

        if (pair.expert >= 0 && lead_of(pair.lead_place) == p % plan.shape.top_k)
            plan.token_row[token * plan.most_rows + place_of(pair.lead_place)] = pair.row;
    }
}

static __device__ void find_slots(const struct epx_route_tokens &a, struct exchange &x,
                                  const struct rank_table &table, struct offsets &o)
{
    if (!find_room(a, x, table, o))
        return;
    if (shows_view()) {
        show_counts(a, o);
        show_rows(a, o);
    }
    index_records(a, o);
    assign_slots(a, table, o);
    index_padding(a, o, {routing_warp(a), num_routing_warps(a)});
    add_kept_rows(a, o);
}

static __global__ void __launch_bounds__(ROUTING_THREADS)
    find_slots_here(const __grid_constant__ struct epx_route_tokens a, struct shared_parts parts)
{
    extern __shared__ __align__(16) int64_t shared[];
    __shared__ struct exchange x;
    __shared__ struct rank_table table;
    __shared__ struct offsets o;
    struct room room = divide_room(shared, parts);
    bool on = is_on(a.comm), failed;

    look_up(a, room.owner, table);
    if (threadIdx.x == 0)
        place_offsets(a, shared, parts, o);
    resume_exchange(a.comm, x);
    if (on) {
        read_matrix(a, room.matrix, o);
        find_slots(a, x, table, o);
        number_rows(a);
    }
    if (is_last_block(a.comm, &x, failed) && threadIdx.x == 0) {
        if (x.outcome.code == EPX_SUCCESS && aborted(a.comm))
            x.outcome = outcome_of_abort(a.comm);
        end_routing(a, x, false);
    }
}

int epx_launch_find_slots(const struct epx_route_tokens *args, EPX_Stream stream)
{
    struct shared_parts parts = parts_of(args, ROUTING_THREADS / EPX_WARP);

    find_slots_here<<<(unsigned)args->comm.blocks, ROUTING_THREADS, bytes_of_parts(parts),
                      stream>>>(*args, parts);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(find_slots_here, MOST_ROUTING_BYTES);

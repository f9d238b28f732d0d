/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route_tokens.cu - a whole routing in one launch. Warps count their tokens' pairs and rows; the
 * sums over all warps, and this rank's records, with each pair's index among this rank's pairs of
 * its expert, go to all ranks in one hop; then every rank has the whole count matrix and turns
 * indices into slots, its own and those of the records that it received.
 * Work: max_tokens * top_k + records here + ranks * experts in every block. Reads ids; writes the
 * plan. Order: (token, choice), whatever the number of blocks.
 * Launch: comm.blocks blocks, which meet at one barrier and wait for other ranks twice.
 */
#include "kernels/routing/routing_steps.cuh"

static __global__ void __launch_bounds__(ROUTING_THREADS)
    route_tokens(const __grid_constant__ struct epx_route_tokens a, struct shared_parts parts)
{
    extern __shared__ int64_t shared[];
    __shared__ struct exchange x;
    __shared__ struct rank_table table;
    __shared__ struct offsets o;
    struct room room = divide_room(shared, parts);
    int32_t counting_warps = parts.warps ? parts.warps : 1;
    int32_t *counts = counters_of(a, parts, room.words);
    bool exchanged = false, failed;

    look_up(a, room.owner, table);
    zero_counts(a, counting_warps, counts);
    if (threadIdx.x == 0)
        place_offsets(a, shared, parts, o);
    begin_exchange(a.comm, a.note, 0, x);
    if (x.outcome.code == EPX_SUCCESS) {
        if (blockIdx.x == 0)
            zero_sums(a);
        exchanged = count_tokens(a, x, table, counting_warps, counts, false);
        if (exchanged)
            signal_arrival(a.comm);
    }
    if (exchanged && await_arrivals(a.comm, x, 1)) {
        read_matrix(a, parts.matrix ? room.words : NULL, o);
        find_slots(a, x, table, o);
    }
    if (is_last_block(a.comm, &x, failed) && threadIdx.x == 0) {
        x.outcome = outcome_of_all(a.comm, x.outcome, failed);
        end_routing(a, x, exchanged);
    }
}

int epx_launch_route_tokens(const struct epx_route_tokens *args, EPX_Stream stream)
{
    struct shared_parts parts = parts_of(args);

    route_tokens<<<(unsigned)args->comm.blocks, ROUTING_THREADS, bytes_of_parts(parts), stream>>>(
        *args, parts);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(route_tokens, MOST_ROUTING_BYTES);

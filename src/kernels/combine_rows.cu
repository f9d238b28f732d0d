/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_rows.cu - expert side of combine and dispatch backward: the sum of each row's pairs,
 * rounded once, straight into the home rank's stage at the row's place. If the stage does not
 * hold all rows there are rounds, and the blocks that wait also sum the tokens of each round;
 * else sum_ranks does it.
 * Work: reads the rows of all pairs here, writes this rank's unique rows. Order: choices.
 * Launch: comm.blocks blocks, which wait for other ranks. sum_ranks follows.
 */
#include "records.cuh"
#include "sums.cuh"

static __device__ void list_pairs(const struct epx_combine_rows &a, const struct round &round,
                                  struct epx_wire_record *record, struct row_list &list)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    int weighted = a.weights && !a.backward;

    for (int32_t i = lane_id(); i < record->num_slots; i += EPX_WARP) {
        int64_t slot = pairs[i].slot;

        list.row[i] = (char *)(uintptr_t)a.rows + slot * a.rounds.cut.row_bytes +
                      epx_segment_offset(a.rounds.cut, round.segment);
        list.weight[i] = weighted ? a.weights[slot] : 1;
    }
    __syncwarp();
}

/* The gradients of the pairs' weights, to the home rank at [token][choice]. */
static __device__ void send_weights(const struct epx_combine_rows &a, int32_t home,
                                    struct epx_wire_record *record)
{
    const struct epx_wire_pair *pairs = epx_wire_pairs(record);
    float *to = (float *)(void *)a.plan.weights[home] + (int64_t)record->token * a.plan.top_k;

    for (int32_t i = lane_id(); i < record->num_pairs; i += EPX_WARP) {
        int64_t slot = pairs[i].slot, choice = pairs[i].expert_choice & 255;

        to[choice] = a.weights[a.plan.rank_major ? slot * a.plan.top_k + choice : slot];
    }
}

static __device__ void send_sum(const struct epx_combine_rows &a, const struct round &round,
                                bool weighted, int32_t home, struct epx_wire_record *record,
                                struct row_list &list)
{
    int64_t at = (record->token - round.first_token) * a.rounds.width + record->place;

    if (record->num_slots == 0)
        return;
    list_pairs(a, round, record, list);
    sum_rows(a.datatype, list, record->num_slots, a.weights && !a.backward,
             epx_segment_length(a.rounds.cut, round.segment),
             a.plan.stage[home] + at * a.rounds.pitch);
    if (weighted && round.segment == 0)
        send_weights(a, home, record);
    __syncwarp();
}

/* The records of all home ranks in turn, so that no rank is stored to by all at once. */
static __device__ void send_sums(const struct epx_combine_rows &a, const struct round &round,
                                 bool weighted, struct row_list &list)
{
    char *records = a.plan.records[a.comm.rank];
    __shared__ int64_t first[EPX_MOST_DEVICE_RANKS], end[EPX_MOST_DEVICE_RANKS];
    __shared__ unsigned long long most;

    if (threadIdx.x == 0)
        most = 0;
    __syncthreads();
    for (int32_t s = (int32_t)threadIdx.x; s < a.comm.num_ranks; s += (int32_t)blockDim.x) {
        first[s] = first_record(a.plan, records, s, round.first_token);
        end[s] = first_record(a.plan, records, s, round.end_token);
        atomicMax(&most, (unsigned long long)(end[s] - first[s]));
    }
    __syncthreads();
    for (int64_t i = global_warp(); i < (int64_t)most * a.comm.num_ranks; i += num_global_warps()) {
        int32_t home = (int32_t)((i + a.comm.rank) % a.comm.num_ranks);
        int64_t u = first[home] + i / a.comm.num_ranks;

        if (u < end[home])
            send_sum(a, round, weighted, home, epx_wire_record_at(&a.plan, records, home, u), list);
    }
}

static __device__ void move_sums(const struct epx_combine_rows &a, struct exchange &x,
                                 struct row_list &list)
{
    bool weighted = a.backward && x.weighted;

    for (int64_t i = 0; i < a.rounds.num; i++) {
        struct round round = round_of(a.rounds, i);

        if (i && !await_credits(a.comm, x, (uint64_t)i))
            return;
        send_sums(a, round, weighted, list);
        signal_arrival(a.comm);
        if (!await_arrivals(a.comm, x, (uint64_t)i + 1))
            return;
        if (a.rounds.num > 1)
            sum_tokens(a, round, weighted, list);
        if (i + 1 < a.rounds.num)
            signal_credit(a.comm);
    }
}

static __global__ void __launch_bounds__(EPX_WAITING_THREADS)
    combine_rows(const __grid_constant__ struct epx_combine_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct row_list lists[EPX_WAITING_THREADS / EPX_WARP];
    int64_t num_rounds = 0;

    begin_exchange(a.comm, a.note, a.plan.outcome->code, x);
    if (x.outcome.code == EPX_SUCCESS && await_ready(a.comm, x, a.plan.outcome)) {
        num_rounds = a.rounds.num;
        move_sums(a, x, lists[threadIdx.x / EPX_WARP]);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0)
        hand_over(a.comm, x, (uint64_t)num_rounds);
}

int epx_launch_combine_rows(const struct epx_combine_rows *args, EPX_Stream stream)
{
    combine_rows<<<(unsigned)args->comm.blocks, EPX_WAITING_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

int epx_load_combine_rows(void)
{
    cudaFuncAttributes attributes;

    return epx_cuda_status(cudaFuncGetAttributes(&attributes, combine_rows));
}

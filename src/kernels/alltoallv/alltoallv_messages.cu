/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * alltoallv_messages.cu - an exact exchange of rows by messages: every rank tells all ranks all of
 * its counts, so that each knows who lacks room; then the rows go from buffer to buffer. The kernel
 * moves no row itself, it posts the exchanges.
 * Work: R * R counts. Order: none. Launch: one block, which waits for other ranks, and those that
 * help it with the copies of the exchanges; ends the operation.
 */
#include "kernels/alltoallv/count_checks.cuh"
#include "kernels/protocol/launches.cuh"
#include "kernels/protocol/load_kernels.cuh"
#include "kernels/wires/messages.cuh"

enum { EXCHANGE_THREADS = 1024 };

/* Numbers of rows; in shared memory. */
struct sums {
    int64_t sent[EPX_MOST_DEVICE_RANKS];  /* from this rank for each rank */
    int64_t from[EPX_MOST_DEVICE_RANKS];  /* their displacements, read once with the counts */
    int64_t total[EPX_MOST_DEVICE_RANKS]; /* from all ranks for each rank */
    int32_t bad;                          /* the first rank with an invalid count; -1 = none */
};

/* The row of a source in the matrix of counts. */
static __device__ __forceinline__ int64_t *counts_in_message(const struct epx_alltoallv_rows &a,
                                                             int32_t source)
{
    return (int64_t *)epx_control_counts(a.comm.own_control, a.comm.num_ranks, 0, source);
}

/* Reads this rank's counts; one invalid count makes all of them 0. */
static __device__ void read_message_counts(const struct epx_alltoallv_rows &a, struct sums &sums)
{
    int32_t ranks = a.comm.num_ranks;

    if (threadIdx.x == 0)
        sums.bad = INT32_MAX;
    __syncthreads();
    for (int32_t r = (int32_t)threadIdx.x; r < ranks; r += EXCHANGE_THREADS) {
        sums.sent[r] = a.sendcounts[r];
        sums.from[r] = a.sdispls[r];
        if (!can_send(a, sums.sent[r], sums.from[r]))
            atomicMin(&sums.bad, r);
    }
    __syncthreads();
    for (int32_t r = (int32_t)threadIdx.x; r < ranks; r += EXCHANGE_THREADS) {
        sums.sent[r] = sums.bad == INT32_MAX ? sums.sent[r] : 0;
        counts_in_message(a, a.comm.rank)[r] = sums.sent[r];
    }
    __syncthreads();
    if (threadIdx.x == 0 && sums.bad == INT32_MAX)
        sums.bad = -1;
    __syncthreads();
}

static __device__ bool exchange_count_messages(const struct epx_alltoallv_rows &a,
                                               struct exchange &x)
{
    int64_t bytes = a.comm.num_ranks * (int64_t)sizeof(int64_t);
    int64_t stride = (char *)counts_in_message(a, 1) - (char *)counts_in_message(a, 0);

    post_exchange(a.comm, (char *)counts_in_message(a, a.comm.rank),
                  (char *)counts_in_message(a, 0), [&](int32_t r) {
                      int64_t length = r == a.comm.rank ? 0 : bytes;

                      return epx_message{0, length, r * stride, length};
                  });
    return await_exchange(a.comm, x);
}

/* Sums the counts, and shows the user where rows come: one source behind the other. */
static __device__ void show_came_counts(const struct epx_alltoallv_rows &a, struct sums &sums)
{
    int32_t ranks = a.comm.num_ranks;

    for (int32_t d = (int32_t)threadIdx.x; d < ranks; d += EXCHANGE_THREADS) {
        int64_t rows = 0;

        for (int32_t s = 0; s < ranks; s++)
            rows = add_capped(rows, counts_in_message(a, s)[d]);
        sums.total[d] = rows;
    }
    for (int32_t s = (int32_t)threadIdx.x; s < ranks; s += EXCHANGE_THREADS) {
        int64_t rows = 0;

        for (int32_t before = 0; before < s; before++)
            rows = add_capped(rows, counts_in_message(a, before)[a.comm.rank]);
        a.recvcounts[s] = counts_in_message(a, s)[a.comm.rank];
        a.rdispls[s] = rows;
    }
    __syncthreads();
}

static __device__ __forceinline__ bool all_rows_fit(const struct exchange &x,
                                                    const struct sums &sums, int32_t rank)
{
    return sums.total[rank] <= ready_long(x, rank, EPX_READY_CAPACITY_LOW);
}

static __device__ bool exchange_row_messages(const struct epx_alltoallv_rows &a, struct exchange &x,
                                             const struct sums &sums)
{
    bool takes = all_rows_fit(x, sums, a.comm.rank);

    post_exchange(a.comm, (char *)(uintptr_t)a.rows, a.recv, [&](int32_t r) {
        int64_t sends = all_rows_fit(x, sums, r) ? sums.sent[r] : 0;
        int64_t comes = takes ? a.recvcounts[r] : 0;

        return epx_message{sends ? sums.from[r] * a.row_bytes : 0, sends * a.row_bytes,
                           comes ? a.rdispls[r] * a.row_bytes : 0, comes * a.row_bytes};
    });
    return await_exchange(a.comm, x);
}

/* The first block: exchanges counts, then rows. */
static __device__ bool exchange_all(const struct epx_alltoallv_rows &a, struct exchange &x,
                                    struct sums &sums)
{
    if (!exchange_ready(a.comm, a.note, NULL, x))
        return false;
    read_message_counts(a, sums);
    if (!exchange_count_messages(a, x))
        return false;
    show_came_counts(a, sums);
    return exchange_row_messages(a, x, sums);
}

/* One thread of the first block: leaves to the last block how the exchanges ended. */
static __device__ void leave_outcome(const struct epx_alltoallv_rows &a, struct exchange &x,
                                     const struct sums &sums, bool exchanged)
{
    a.comm.state->rows = exchanged ? sums.total[a.comm.rank] : 0;
    if (exchanged) {
        count_rows(a.comm, sums.sent, a.row_bytes);
        x.outcome = outcome_of_counts(a, sums.bad, a.comm.state->rows);
    }
    hand_over(a.comm, x, 0, false, NULL);
}

static __global__ void __launch_bounds__(EXCHANGE_THREADS)
    alltoallv_messages(const __grid_constant__ struct epx_alltoallv_rows a)
{
    __shared__ struct exchange x;
    __shared__ struct sums sums;

    if (blockIdx.x) {
        copy_until_end(a.comm);
    } else {
        bool exchanged = exchange_all(a, x, sums);

        if (threadIdx.x == 0)
            leave_outcome(a, x, sums, exchanged);
    }
    if (is_last_block(a.comm) && threadIdx.x == 0)
        end_operation(a.comm, a.comm.state->rows);
}

int epx_launch_alltoallv_messages(const struct epx_alltoallv_rows *args, EPX_Stream stream)
{
    alltoallv_messages<<<epx_blocks_for_messages(args->comm), EXCHANGE_THREADS, 0, stream>>>(*args);
    return epx_cuda_status(cudaGetLastError());
}

static const struct epx_loaded loaded(alltoallv_messages);

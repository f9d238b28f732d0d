/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - an EPX_Alltoallv whose every byte is compared with what the senders hold. */
#include "support/exchange.h"

#include "support/layer.h"
#include "support/suite.h"

static int64_t rows_between(const struct exchange *x, int source, int target)
{
    uint64_t pair = (uint64_t)(source * suite_size + target);
    uint64_t seed = x->count_seed ? x->count_seed : x->data.seed;

    return data_below(seed, 55, pair, 4) ? data_below(seed, 56, pair, x->most_rows + 1) : 0;
}

/* The block for a rank starts after those for all higher ranks, each with its gap. */
static int64_t block_start(const struct exchange *x, int source, int target)
{
    int64_t start = x->gap;

    for (int t = suite_size - 1; t > target; t--)
        start += rows_between(x, source, t) + x->gap;
    return start;
}

static int64_t rows_in_front(const struct exchange *x, int source, int target)
{
    int64_t rows = 0;

    for (int s = 0; s < source; s++)
        rows += rows_between(x, s, target);
    return rows;
}

static void make_buffers(struct exchange *x, int64_t send_rows)
{
    struct buffer *arrays[] = {&x->sendcounts, &x->sdispls, &x->recvcounts, &x->rdispls};
    size_t bytes = data_row_bytes(&x->data), element = data_size(x->data.datatype);

    for (int i = 0; i < 4; i++)
        buffer_create(arrays[i], (size_t)suite_size * sizeof(int64_t), sizeof(int64_t),
                      MEMORY_MALLOC, x->comm);
    buffer_create(&x->send, (size_t)send_rows * bytes, element, MEMORY_MALLOC, x->comm);
    buffer_create(&x->recv, (size_t)x->recv_capacity * bytes, element, x->memory, x->comm);
}

static void fill_counts(struct exchange *x)
{
    for (int r = 0; r < suite_size; r++) {
        ((int64_t *)x->sendcounts.data)[r] = rows_between(x, suite_rank, r);
        ((int64_t *)x->sdispls.data)[r] = block_start(x, suite_rank, r);
    }
    buffer_freeze(&x->sendcounts);
    buffer_freeze(&x->sdispls);
}

static void fill_rows(struct exchange *x)
{
    int64_t send_rows = block_start(x, suite_rank, -1);
    size_t bytes = data_row_bytes(&x->data);
    char *out;

    for (int r = 0; r < suite_size; r++) {
        ((int64_t *)x->recvcounts.expected)[r] = rows_between(x, r, suite_rank);
        ((int64_t *)x->rdispls.expected)[r] = rows_in_front(x, r, suite_rank);
    }

    for (int64_t row = 0; row < send_rows; row++)
        data_row(&x->data, suite_rank, row, (char *)x->send.data + (size_t)row * bytes);
    buffer_freeze(&x->send);
    x->recv_rows = rows_in_front(x, suite_size, suite_rank);
    if (exchange_code(x))
        return;
    out = x->recv.expected;
    for (int s = 0; s < suite_size; s++)
        for (int64_t i = 0; i < rows_between(x, s, suite_rank); i++, out += bytes)
            data_row(&x->data, s, block_start(x, s, suite_rank) + i, out);
}

int exchange_code(const struct exchange *x)
{
    return x->recv_capacity < x->recv_rows ? EPX_ERR_TRUNCATE : EPX_SUCCESS;
}

void exchange_fill_rows(struct exchange *x)
{
    buffer_reset(&x->recv);
    buffer_reset(&x->recvcounts);
    buffer_reset(&x->rdispls);
    fill_rows(x);
}

void exchange_fill(struct exchange *x)
{
    fill_counts(x);
    exchange_fill_rows(x);
}

int exchange_start(struct exchange *x)
{
    x->recv_rows = rows_in_front(x, suite_size, suite_rank);
    x->recv_capacity = x->recv_rows + suite_rank % 2;
    if (x->short_rows && suite_rank == suite_size - 1)
        x->recv_capacity = x->recv_rows > x->short_rows ? x->recv_rows - x->short_rows : 0;
    make_buffers(x, block_start(x, suite_rank, -1));
    fill_counts(x);
    fill_rows(x);
    return EPX_Alltoallv(x->send.bytes ? x->send.address : NULL, x->sendcounts.address,
                         x->sdispls.address, x->recv.bytes ? x->recv.address : NULL,
                         x->recvcounts.address, x->rdispls.address, x->recv_capacity, x->data.count,
                         x->data.datatype, x->comm, x->stream, &x->request);
}

int exchange_check(const struct exchange *x)
{
    return buffer_check(&x->send, "alltoallv: sendbuf") &
           buffer_check(&x->sendcounts, "alltoallv: sendcounts") &
           buffer_check(&x->sdispls, "alltoallv: sdispls") &
           buffer_check(&x->recvcounts, "alltoallv: recvcounts") &
           buffer_check(&x->rdispls, "alltoallv: rdispls") &
           buffer_check(&x->recv, "alltoallv: recvbuf");
}

int exchange_init(struct exchange *x, int flags)
{
    const int64_t most = (int64_t)suite_size * x->most_rows;

    x->recv_capacity = most - (suite_rank == suite_size - 1 ? x->short_rows : 0);
    x->recv_capacity = x->recv_capacity > 0 ? x->recv_capacity : 0;
    make_buffers(x, most + (suite_size + 1) * x->gap);
    fill_counts(x);
    fill_rows(x);
    return EPX_Alltoallv_init(
        x->send.bytes ? x->send.address : NULL, x->sendcounts.address, x->sdispls.address,
        x->recv.bytes ? x->recv.address : NULL, x->recvcounts.address, x->rdispls.address,
        x->recv_capacity, x->data.count, x->data.datatype, x->comm, x->stream, flags, &x->request);
}

static int wait_and_check(struct exchange *x)
{
    int wanted = exchange_code(x);
    MPI_Status status;

    return EXPECT_CODE(EPX_Wait(&x->request, &status), wanted) &
           (status_check(&status, wanted, x->recv_rows) && exchange_check(x));
}

int exchange_finish(struct exchange *x)
{
    int ok = wait_and_check(x);

    return ok & EXPECT(x->request == EPX_REQUEST_NULL, "request not nulled");
}

int exchange_wait(struct exchange *x)
{
    EPX_Request before = x->request;
    int ok = wait_and_check(x);

    return ok & EXPECT(x->request == before, "a persistent request has become another one");
}

void exchange_free(struct exchange *x)
{
    buffer_free(&x->send);
    buffer_free(&x->recv);
    buffer_free(&x->sendcounts);
    buffer_free(&x->sdispls);
    buffer_free(&x->recvcounts);
    buffer_free(&x->rdispls);
}

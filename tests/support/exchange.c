/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.c - an EPX_Alltoallv, or EPX_Neighbor_alltoallv, whose every byte is compared with what
 * the senders hold. */
#include "support/exchange.h"

#include <stdlib.h>

#include "support/layer.h"
#include "support/suite.h"

/* The k-th block of rows that a rank sends another. */
static int64_t rows_between(const struct exchange *x, int source, int target, int k)
{
    uint64_t pair = (uint64_t)((k * suite_size + source) * suite_size + target);
    uint64_t seed = x->count_seed ? x->count_seed : x->data.seed;

    return data_below(seed, 55, pair, 4) ? data_below(seed, 56, pair, x->most_rows + 1) : 0;
}

static int num_partners(const struct exchange *x, int rank, int incoming)
{
    return neighbors_list(x->neighbors, rank, incoming, NULL);
}

/* Freed by the caller. */
static struct partner *list_of(const struct exchange *x, int rank, int incoming)
{
    struct partner *list = calloc((size_t)num_partners(x, rank, incoming) + 1, sizeof(*list));

    neighbors_list(x->neighbors, rank, incoming, list);
    return list;
}

/* Where the block for a position of the source's list starts: after those for all later positions,
 * each with its gap. */
static int64_t start_at(const struct exchange *x, int source, int position)
{
    struct partner *list = list_of(x, source, 0);
    int64_t start = x->gap;

    for (int i = num_partners(x, source, 0) - 1; i > position; i--)
        start += rows_between(x, source, list[i].rank, list[i].k) + x->gap;
    free(list);
    return start;
}

/* Where the k-th block that a rank sends another starts. */
static int64_t block_start(const struct exchange *x, int source, int target, int k)
{
    struct partner *list = list_of(x, source, 0);
    int position = 0;

    while (list[position].rank != target || list[position].k != k)
        position++;
    free(list);
    return start_at(x, source, position);
}

/* Rows that this rank receives from the positions of its list in front of one. */
static int64_t rows_in_front(const struct exchange *x, int position)
{
    struct partner *list = list_of(x, suite_rank, 1);
    int64_t rows = 0;

    for (int i = 0; i < position; i++)
        rows += rows_between(x, list[i].rank, suite_rank, list[i].k);
    free(list);
    return rows;
}

static int64_t rows_received(const struct exchange *x)
{
    return rows_in_front(x, num_partners(x, suite_rank, 1));
}

static void make_buffers(struct exchange *x, int64_t send_rows)
{
    struct buffer *arrays[] = {&x->sendcounts, &x->sdispls, &x->recvcounts, &x->rdispls};
    size_t bytes = data_row_bytes(&x->data), element = data_size(x->data.datatype);

    for (int i = 0; i < 4; i++)
        buffer_create(arrays[i], (size_t)num_partners(x, suite_rank, i / 2) * sizeof(int64_t),
                      sizeof(int64_t), MEMORY_MALLOC, x->comm);
    buffer_create(&x->send, (size_t)send_rows * bytes, element, MEMORY_MALLOC, x->comm);
    buffer_create(&x->recv, (size_t)x->recv_capacity * bytes, element, x->memory, x->comm);
}

static void fill_counts(struct exchange *x)
{
    struct partner *list = list_of(x, suite_rank, 0);

    for (int i = 0; i < num_partners(x, suite_rank, 0); i++) {
        ((int64_t *)x->sendcounts.data)[i] = rows_between(x, suite_rank, list[i].rank, list[i].k);
        ((int64_t *)x->sdispls.data)[i] = start_at(x, suite_rank, i);
    }
    free(list);
    buffer_freeze(&x->sendcounts);
    buffer_freeze(&x->sdispls);
}

static void expect_counts(struct exchange *x)
{
    struct partner *list = list_of(x, suite_rank, 1);

    for (int i = 0; i < num_partners(x, suite_rank, 1); i++) {
        ((int64_t *)x->recvcounts.expected)[i] =
            rows_between(x, list[i].rank, suite_rank, list[i].k);
        ((int64_t *)x->rdispls.expected)[i] = rows_in_front(x, i);
    }
    free(list);
}

static void expect_rows(struct exchange *x)
{
    struct partner *list = list_of(x, suite_rank, 1);
    size_t bytes = data_row_bytes(&x->data);
    char *out = x->recv.expected;

    for (int i = 0; i < num_partners(x, suite_rank, 1); i++) {
        int64_t start = block_start(x, list[i].rank, suite_rank, list[i].k);
        int64_t rows = rows_between(x, list[i].rank, suite_rank, list[i].k);

        for (int64_t row = 0; row < rows; row++, out += bytes)
            data_row(&x->data, list[i].rank, start + row, out);
    }
    free(list);
}

static void fill_rows(struct exchange *x)
{
    int64_t send_rows = start_at(x, suite_rank, -1);
    size_t bytes = data_row_bytes(&x->data);

    expect_counts(x);
    for (int64_t row = 0; row < send_rows; row++)
        data_row(&x->data, suite_rank, row, (char *)x->send.data + (size_t)row * bytes);
    buffer_freeze(&x->send);
    x->recv_rows = rows_received(x);
    if (!exchange_code(x))
        expect_rows(x);
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

static void *address_of(const struct buffer *buffer)
{
    return buffer->bytes ? buffer->address : NULL;
}

static int call(struct exchange *x)
{
    if (x->neighbors)
        return EPX_Neighbor_alltoallv(address_of(&x->send), address_of(&x->sendcounts),
                                      address_of(&x->sdispls), address_of(&x->recv),
                                      address_of(&x->recvcounts), address_of(&x->rdispls),
                                      x->recv_capacity, x->data.count, x->data.datatype,
                                      x->neighbors->graph, x->stream, &x->request);
    return EPX_Alltoallv(address_of(&x->send), x->sendcounts.address, x->sdispls.address,
                         address_of(&x->recv), x->recvcounts.address, x->rdispls.address,
                         x->recv_capacity, x->data.count, x->data.datatype, x->comm, x->stream,
                         &x->request);
}

int exchange_start(struct exchange *x)
{
    x->recv_rows = rows_received(x);
    x->recv_capacity = x->recv_rows + suite_rank % 2;
    if (x->short_rows && suite_rank == suite_size - 1)
        x->recv_capacity = x->recv_rows > x->short_rows ? x->recv_rows - x->short_rows : 0;
    make_buffers(x, start_at(x, suite_rank, -1));
    fill_counts(x);
    fill_rows(x);
    return call(x);
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

static int call_init(struct exchange *x, int flags)
{
    if (x->neighbors)
        return EPX_Neighbor_alltoallv_init(address_of(&x->send), address_of(&x->sendcounts),
                                           address_of(&x->sdispls), address_of(&x->recv),
                                           address_of(&x->recvcounts), address_of(&x->rdispls),
                                           x->recv_capacity, x->data.count, x->data.datatype,
                                           x->neighbors->graph, x->stream, flags, &x->request);
    return EPX_Alltoallv_init(address_of(&x->send), x->sendcounts.address, x->sdispls.address,
                              address_of(&x->recv), x->recvcounts.address, x->rdispls.address,
                              x->recv_capacity, x->data.count, x->data.datatype, x->comm, x->stream,
                              flags, &x->request);
}

int exchange_init(struct exchange *x, int flags)
{
    const int64_t in = num_partners(x, suite_rank, 1), out = num_partners(x, suite_rank, 0);
    const int64_t most = in * x->most_rows;

    x->recv_capacity = most - (suite_rank == suite_size - 1 ? x->short_rows : 0);
    x->recv_capacity = x->recv_capacity > 0 ? x->recv_capacity : 0;
    make_buffers(x, out * x->most_rows + (out + 1) * x->gap);
    fill_counts(x);
    fill_rows(x);
    return call_init(x, flags);
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

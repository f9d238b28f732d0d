/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - an EPX_Alltoallv, or EPX_Neighbor_alltoallv, persistent or not, whose every byte is
 * compared with what the senders hold. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "exchange/neighbors.h"
#include "support/buffer.h"
#include "support/data.h"

struct exchange {
    EPX_Comm comm;
    struct neighbors *neighbors; /* NULL = EPX_Alltoallv */
    struct data data;
    int most_rows;      /* to each rank: the counts are 0 to most_rows */
    int gap;            /* rows left out before each block of the send buffer */
    int64_t short_rows; /* by this many rows the last rank's buffer is too small */
    enum memory memory;
    EPX_Stream stream;
    uint64_t count_seed; /* 0 = the counts follow from the seed of data */
    struct buffer send, recv, sendcounts, sdispls, recvcounts, rdispls;
    int64_t recv_rows, recv_capacity;
    EPX_Request request;
};

/* With comm, data and the next four members set. Returns the code of the call. */
int exchange_start(struct exchange *exchange);
/* Makes a persistent request in its place; EPX_Start then starts it. The buffers have room for the
 * rows of any seed. */
int exchange_init(struct exchange *exchange, int flags);
/* Put other rows and counts into the same buffers, for the seeds set now, while the request is
 * inactive; fill_rows leaves the counts. */
void exchange_fill(struct exchange *exchange);
void exchange_fill_rows(struct exchange *exchange);
/* As finish, for an operation that a persistent request has started, which stays. */
int exchange_wait(struct exchange *exchange);
int exchange_code(const struct exchange *exchange);
int exchange_check(const struct exchange *exchange);
int exchange_finish(struct exchange *exchange);
void exchange_free(struct exchange *exchange);

#endif

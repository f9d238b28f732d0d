/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - an EPX_Alltoallv whose every byte is compared with what the senders hold. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "support/buffer.h"
#include "support/data.h"

struct exchange {
    EPX_Comm comm;
    struct data data;
    int most_rows;      /* to each rank: the counts are 0 to most_rows */
    int gap;            /* rows left out before each block of the send buffer */
    int64_t short_rows; /* by this many rows the last rank's buffer is too small */
    enum memory memory;
    struct buffer send, recv, sendcounts, sdispls, recvcounts, rdispls;
    int64_t recv_rows, recv_capacity;
    EPX_Request request;
};

/* With comm, data and the next four members set. Returns the code of the call. */
int exchange_start(struct exchange *exchange);
int exchange_code(const struct exchange *exchange);
int exchange_check(const struct exchange *exchange);
int exchange_finish(struct exchange *exchange);
void exchange_free(struct exchange *exchange);

#endif

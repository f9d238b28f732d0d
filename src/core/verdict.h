/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verdict.h - what ranks and kernels find wrong with an operation, in words: one text for one
 * error, whoever finds it. Each function records and logs the error and returns its code.
 */
#ifndef EPX_CORE_VERDICT_H
#define EPX_CORE_VERDICT_H

#include <stdint.h>

/* What ranks tell each other of an operation and must agree on. */
enum epx_told {
    EPX_TOLD_EPOCH,
    EPX_TOLD_VERB,
    EPX_TOLD_ROUTE,
    EPX_TOLD_GRAPH,
    EPX_TOLD_ROW_BYTES,
    EPX_TOLD_DATATYPE,
    EPX_TOLD_BIASES,
};

/* Returns EPX_FLOAT32 as "EPX_FLOAT32". */
const char *epx_datatype_name(int64_t datatype);

/* A rank, mostly 0, told `first`, and another rank another value. EPX_ERR_ARG. */
int epx_fail_differs(enum epx_told told, int beside, int64_t first, int64_t value, int rank);
/* A row of the field has `first` bytes on rank 0, others on the rank; -1 = the list of fields ends
 * before it. EPX_ERR_ARG. */
int epx_fail_field(int field, int64_t first, int64_t value, int rank);
/* One rank gave weights, another none, in an operation of this verb. EPX_ERR_ARG. */
int epx_fail_weights(int64_t verb, int rank_without, int rank_with);
/* A rank's receive buffer cannot take a routing. EPX_ERR_TRUNCATE. */
int epx_fail_no_room(int rank, int64_t rows, int64_t capacity);
/* An expert's slab cannot take a routing; the id is that among the experts of all ranks.
 * EPX_ERR_TRUNCATE. */
int epx_fail_full_slab(int expert, int64_t rows, int64_t room);
/* A rank's receive buffer cannot take an alltoallv. EPX_ERR_TRUNCATE. */
int epx_fail_too_many(int rank, int64_t rows, int64_t capacity);
/* An expert id out of range, the first of num; in a replayed graph num_experts is unknown, 0.
 * EPX_ERR_ARG. */
struct epx_bad_pair {
    int64_t id, token, choice, num;
};
int epx_fail_bad_id(struct epx_bad_pair bad, int num_experts);
/* A count or displacement of an alltoallv. EPX_ERR_COUNT. */
int epx_fail_bad_count(int rank, int64_t count, int64_t displ);
/* An alltoallv with rows for a rank and no buffer. EPX_ERR_BUFFER. */
int epx_fail_no_rows(int rank, int64_t count);
/* An alltoallv with rows past the end of the memory that sendbuf lies in. EPX_ERR_BUFFER. */
int epx_fail_past_end(int rank, int64_t count, int64_t displ, int64_t rows);
/* The lengths of rows on the two ranks of an edge differ. EPX_ERR_ARG. */
int epx_fail_edge(int sender, int64_t sent_bytes, int receiver, int64_t received_bytes);
/* A rank sends other rows than the counts that were fixed. EPX_ERR_ARG. */
int epx_fail_fixed(int sender, int64_t rows, int64_t fixed);
/* The routing that the operation stands on failed, with this code. */
int epx_fail_routing(int code, int rank);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ready.h - the first thing that every rank tells every other about an operation: what it is
 * and where rows may be put. Rows move only after all of them were found to agree.
 */
#ifndef EPX_CORE_READY_H
#define EPX_CORE_READY_H

#include "core/request.h"

enum { EPX_WEIGHTS_NONE, EPX_WEIGHTS_GIVEN, EPX_WEIGHTS_EITHER };

/* What a rank tells of one array of rows. */
struct epx_ready_field {
    int64_t bytes;   /* of a row */
    int64_t segment; /* of the receive buffer; -1 = it is not reachable */
    int64_t offset;  /* in the segment */
};

struct epx_ready {
    int64_t epoch;
    int64_t verb;
    int64_t route;        /* id, -1 = none */
    int64_t error;        /* of the routing that the operation uses */
    int64_t datatype;     /* where rows are added */
    int64_t weights;      /* EITHER = NULL on a rank without rows, which tells nothing */
    int64_t biases;       /* combine: arrays of rows that the sums start from */
    int64_t most_rows;    /* alltoallv: most rows for one rank */
    int64_t known;        /* alltoallv: the operation whose grants are still in force, 0 = none */
    int64_t block_tokens; /* hier: most tokens of a block whose rows fit this rank's memory */
    int64_t waited_ns;    /* staged: how long this rank waited in the handshake before */
    int64_t num_fields;
    struct epx_ready_field fields[EPX_MAX_FIELDS]; /* those from num_fields on are not told */
};

/* What this rank tells of the request. */
struct epx_ready epx_ready_of(const struct epx_request *request);
/* Bytes of a ready without the fields that it does not have. */
size_t epx_ready_bytes(int64_t num_fields);
/* Whether the other ranks can store into all receive buffers of the rank that told this. */
int epx_ready_takes_stores(const struct epx_ready *ready);
/*
 * Returns EPX_ERR_ARG unless all ranks tell the same, else the error of the routing; sets *weighted
 * if pair weights travel. All ranks read the same ready[] and come to the same verdict. If they
 * disagree, a routing that any rank called fails on all.
 */
int epx_ready_agree(struct epx_request *request, const struct epx_ready ready[], int *weighted);
/* The handshake of a half of an operation whose ranks have agreed before, which needs no other
 * rank. Returns 0, and does nothing, for all other operations. */
int epx_ready_skip(struct epx_request *request, int *weighted, int *moved);

#endif

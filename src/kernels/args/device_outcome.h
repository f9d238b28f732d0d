/* SPDX-License-Identifier: BSD-3-Clause */
/* device_outcome.h - how an operation on device memory ended, and the word that tells the host. */
#ifndef EPX_KERNELS_ARGS_DEVICE_OUTCOME_H
#define EPX_KERNELS_ARGS_DEVICE_OUTCOME_H

#include <stdint.h>

/* How an operation ended; the meaning of the values depends on what. */
enum epx_outcome_what {
    EPX_OUTCOME_FINE,
    EPX_OUTCOME_SILENT,    /* rank did not answer; a = verb */
    EPX_OUTCOME_DIFFERS,   /* word `a` of rank is c, that of the rank beside b; or bytes of a row of
                              a field, -1 = it is missing */
    EPX_OUTCOME_WEIGHTS,   /* weights are NULL on rank but not on rank a */
    EPX_OUTCOME_SHORT,     /* rank needs a rows, its capacity is b */
    EPX_OUTCOME_FULL,      /* expert c of rank needs a rows, its slab has b */
    EPX_OUTCOME_BAD_ID,    /* token a, choice b, value c; rank holds how many, at most INT_MAX */
    EPX_OUTCOME_BAD_COUNT, /* alltoallv: sendcounts[rank] is a, sdispls[rank] is b */
    EPX_OUTCOME_NO_ROWS,   /* alltoallv: sendcounts[rank] is a, but there is no buffer */
    EPX_OUTCOME_PAST_END,  /* alltoallv: the same with sdispls[rank] b, but sendbuf has c rows */
    EPX_OUTCOME_EDGE,      /* neighbours: rows of rank have a bytes, this rank's b; c: 1 = rank is
                              the one that sends */
    EPX_OUTCOME_ROUTING    /* the routing failed on rank */
};

struct epx_outcome {
    int32_t code; /* EPX_ERR_* */
    int32_t what; /* enum epx_outcome_what */
    int32_t rank;
    int32_t beside; /* EPX_OUTCOME_DIFFERS: the rank that `rank` differs from */
    int64_t a, b, c;
};

/*
 * Pinned host memory: written by the last block of an operation, read by EPX_Wait and EPX_Test. The
 * word is written last, behind a fence: number << 32 | rows; or number << 32 |
 * EPX_COMPLETION_DETAILS if the rest was written before it. Most operations write the word alone.
 */
struct epx_completion {
    uint64_t word;
    int64_t rows; /* that this rank received */
    struct epx_outcome outcome;
};

#define EPX_COMPLETION_DETAILS 0xffffffffu

#endif

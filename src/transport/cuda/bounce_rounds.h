/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bounce_rounds.h - the rounds of an exchange of messages: what transport_bounce.c makes
 * for them, and how far they have come.
 */
#ifndef EPX_TRANSPORT_CUDA_BOUNCE_ROUNDS_H
#define EPX_TRANSPORT_CUDA_BOUNCE_ROUNDS_H

#include "transport/cuda/asked_copies.h"
#include "transport/cuda/device_windows.h"
#include "transport/cuda/pieces.h"
#include "transport/transport.h"

/* A round that is being filled. */
struct epx_bounce_filling {
    int claimed, asked, full; /* asked: for all copies */
    char **place;             /* [R] where the block goes; NULL = the rank has not claimed */
    char *copied;             /* [R] its copy was asked for */
};

struct epx_bounce {
    struct epx_device_windows windows; /* first */
    struct epx_comm *comm;
    struct epx_transport host; /* moves the rounds, without a ground */

    struct epx_pieces pieces;
    char *stage[2];
    void **registered; /* [R] stages that this transport registered with CUDA */
    int is_mapped;     /* the stages of all ranks are mapped here */

    struct epx_copies copies;
    uint64_t emptied[2]; /* copies to the GPU, up to the last one from a stage */

    /* the exchange under way */
    const struct epx_exchange *exchange;
    int64_t rounds, own_rounds;
    int64_t begun; /* rounds of this exchange that have begun */

    uint64_t number; /* of the last round that has begun */
    int under_way;
    struct epx_bounce_filling filling; /* the next round */
    char *came;                        /* [R] whose block of the round under way has come */
    int *counts, *displs;              /* counts: [2][R] to and from each rank; displs: [R] */
    uint64_t *steps;                   /* [2][R] pinned: as they are, and as they were last shown */
    int steps_changed;
    uint64_t shown; /* copies to the GPU, up to the last one of the steps */
    int64_t moved_ns;
};

/* `start` and `queued` of struct epx_exchange_ops. */
int epx_bounce_exchange(void *state, const struct epx_exchange *exchange, void *stream);
int epx_bounce_queued(void *state, int *queued, int *moved);

#endif

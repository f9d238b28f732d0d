/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wait_times.h - whom the operations of a communicator on host memory have waited for, and how
 * long. kernels/protocol/waits.cuh counts on devices.
 */
#ifndef EPX_CORE_HEALTH_WAIT_TIMES_H
#define EPX_CORE_HEALTH_WAIT_TIMES_H

#include <stddef.h>

#include "base/status.h"
#include "core/health/trace.h"

/*
 * A look is a step of the operation at the head of the queue that found a rank lacking. Time from
 * one look to the next step is charged to each rank that lacked, so each of several late ranks has
 * its own. All is under the lock.
 */
struct epx_waits {
    int rank, num_ranks;
    uint64_t *ns, *operations;                 /* [R] of all operations that are complete */
    const uint64_t *told_ns, *told_operations; /* [R] these, or what kernels write */
    uint64_t *now_ns;                          /* [R] of the operation at the head */
    int64_t *since_ns;   /* [R] when the wait for a rank that lacks began; 0 = it does not */
    uint64_t unknown_ns; /* of the operation at the head: nobody knew for whom */
    int64_t looked_ns;   /* when the last look was; 0 = the last step got on */
    uint64_t absences;   /* epx_waits_leave had been called so often at that look */
    int unknown;         /* at that look nobody was known to lack */
    int waited;          /* now_ns is not all 0 */
    int agreed;          /* the operation at the head has had the ready words of all */
    int threaded;        /* a thread progresses the communicator: it never leaves */
    struct epx_traced *traced;
};

/* What a rank tells of one handshake where nobody sees who comes last, see epx_waits_compare. */
struct epx_waits_told {
    int64_t waited_ns;  /* from its start to its end, whatever this host did meanwhile; 0 = none */
    int64_t counted_ns; /* of these, those in which this host waited */
};

/* Whether a step that got nowhere waits for a rank. */
struct epx_waits_lack {
    int (*lacks)(const void *step, int rank);
    const void *step;
};

int epx_waits_create(struct epx_waits *waits, int rank, int num_ranks);
void epx_waits_free(struct epx_waits *waits);
/* Fills the caller's arrays. */
int epx_waits_copy(const struct epx_waits *waits, EPX_Waits *copy);

/* A step got nowhere; now_ns is the time. */
void epx_waits_look(struct epx_waits *waits, struct epx_waits_lack lack, int64_t now_ns);
/* A step got on; agreed: the operation has had the ready words of all. */
void epx_waits_step(struct epx_waits *waits, int agreed);
/* The operation at the head is complete. */
void epx_waits_end(struct epx_waits *waits);
/* The host leaves a call that waits for nothing. What it does until the next is no wait. */
void epx_waits_leave(void);

/*
 * At the end of a handshake that took elapsed_ns: charges the waits of the one before, told, from
 * what all ranks tell of it in this one. A handshake ends on all ranks about when the last has
 * come: the later a rank came, the less it waited. waited_ns of each rank is `stride` bytes behind
 * that of the rank before. Then told is this handshake.
 */
void epx_waits_compare(struct epx_waits *waits, struct epx_waits_told *told, int64_t elapsed_ns,
                       const int64_t *waited_ns, size_t stride);

/* From now on the counters are those that kernels write, in memory that the host can read. */
static inline void epx_waits_tell(struct epx_waits *waits, const uint64_t *ns,
                                  const uint64_t *operations)
{
    waits->told_ns = ns;
    waits->told_operations = operations;
}

/* Takes over what they have, before that memory is freed. */
static inline void epx_waits_keep(struct epx_waits *waits)
{
    for (int r = 0; r < waits->num_ranks; r++) {
        waits->ns[r] = waits->told_ns[r];
        waits->operations[r] = waits->told_operations[r];
    }
    epx_waits_tell(waits, waits->ns, waits->operations);
}

#endif

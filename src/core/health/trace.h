/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace.h - with the variable EPX_TRACE: a file that tells of all ranks when each operation began,
 * got on, waited and ended. All functions but begin are called with the lock held.
 */
#ifndef EPX_CORE_HEALTH_TRACE_H
#define EPX_CORE_HEALTH_TRACE_H

#include <stdint.h>

/* What the trace has of a communicator; zeroed, it is not traced. */
struct epx_traced {
    int number; /* in the order in which this process made them, from 1 */
    int rank, size;
    int64_t last_ns;   /* when its last operation ended */
    uint64_t *seen_ns; /* [R] what its kernels had waited for each rank by then, or NULL */
};

struct epx_traced_operation {
    const char *name; /* that stays */
    int error;
    uint64_t epoch;
    int64_t called_ns, agreed_ns; /* agreed_ns 0 = the host does not know */
};

/* A communicator is about to be made; it is there; it ends, having waited so long for each rank:
 * writes what there is of all communicators. */
void epx_trace_begin(void);
/* In a child of fork: what is not written yet is its parent's. */
void epx_trace_forget(void);
void epx_trace_comm(struct epx_traced *traced, int rank, int size);
void epx_trace_close(struct epx_traced *traced, const uint64_t *ns, const uint64_t *operations);

/* The time, 0 if there is no trace. */
int64_t epx_trace_time(void);
/* An operation is complete. kernels_ns: [R] what kernels have waited for each rank since the
 * communicator was made; NULL on host memory. */
void epx_trace_end(struct epx_traced *traced, const struct epx_traced_operation *operation,
                   const uint64_t *kernels_ns);
/* The operation at the head waited for a rank. */
void epx_trace_wait(const struct epx_traced *traced, int rank, int64_t from_ns, int64_t to_ns);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * agree.h - bounded blocking collectives of the library itself, over the control plane. They
 * progress all communicators meanwhile; a rank that does not come ends the communicator.
 */
#ifndef EPX_CORE_AGREE_H
#define EPX_CORE_AGREE_H

#include "core/comm.h"

/* For an error of a collective: ends the communicator too, and returns the error. The peers are in
 * that collective or will be, and nobody knows in what state it is. */
int epx_comm_break(struct epx_comm *comm, int rc);
/* Something that all ranks take part in: done sets *done when it has ended here, and *awaited to
 * the rank that it waits for, if it knows one. An error of done ends the communicator. */
struct epx_joint {
    int (*done)(void *state, int *done, int *awaited);
    void *state;
};
int epx_comm_await(struct epx_comm *comm, struct epx_joint joint);
/* Local: a pass of progress in the middle of long work that peers wait for; the error of a
 * communicator that is finished. */
int epx_comm_pass(struct epx_comm *comm);
/* Every rank learns the error of the lowest rank that failed; rc is this rank's own result. */
int epx_comm_agree(struct epx_comm *comm, int rc);
/* As epx_comm_agree, for errors that were not logged: the lowest rank that failed logs its own. */
int epx_comm_agree_aloud(struct epx_comm *comm, int rc);
/* As epx_fail, where all ranks fail with one message: rank 0 logs it. Local. */
int epx_comm_fail(const struct epx_comm *comm, int code, const char *format, ...) EPX_PRINTF(3, 4);
/* Whether the value is the same on all ranks. */
int epx_comm_equal(struct epx_comm *comm, int64_t value, int *equal);
/* EPX_ERR_ARG on all ranks unless the value is the same on all. */
int epx_comm_same(struct epx_comm *comm, const char *name, int64_t value);
/* As epx_comm_same, for a value that users know by a word; words NULL: by the number. */
int epx_comm_same_word(struct epx_comm *comm, const char *name, int64_t value,
                       const char *const *words);
int epx_comm_max(struct epx_comm *comm, int64_t value, int64_t *max);
/* Copies data from rank 0 to all; at most EPX_MAX_ERROR_STRING bytes. */
int epx_comm_bcast(struct epx_comm *comm, void *data, int bytes);
/* Gathers the value of each rank in values[size], which may be NULL, and in
 * comm->agreement.gathered, which must exist. */
int epx_comm_allgather(struct epx_comm *comm, int64_t value, int64_t *values);
/* Gathers in all[size][bytes]. If it fails, MPI may still read own and write all at any later
 * time. */
int epx_comm_allgather_bytes(struct epx_comm *comm, const void *own, int bytes, void *all);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ranks.h - the ranks of a job, and what they tell each other beside what is measured. mpiexec
 * started them, and it is done by MPI; or torchrun did, or who sets the same variables, and it is
 * done by EPX: nothing calls MPI then.
 *
 * All but start and failed are collective. A rank that cannot go on says why and ends the job.
 */
#ifndef EPX_TOOLS_RANKS_H
#define EPX_TOOLS_RANKS_H

#include <epx.h>
#include <stddef.h>
#include <stdint.h>

/* Ends the process, having said why, if the ranks do not find each other. */
void ranks_start(const char *program, int *argc, char ***argv);
void ranks_finish(void);
/* Ends the job, which has failed. */
_Noreturn void ranks_failed(void);
/* Local: ends the job, with the error's message, if a call of EPX failed. */
void ranks_must(int rc);

int ranks_own(void);
int ranks_num(void);
int ranks_by_mpi(void);
/* This rank among those of its machine. */
int ranks_on_machine(void);

void ranks_barrier(void);
void ranks_allgather(const void *own, void *all, size_t bytes);
/* Hands rank 0's bytes to all. */
void ranks_bcast(void *data, size_t bytes);
/* Each rank's r-th piece of so many bytes becomes the rank's piece on rank r. */
void ranks_alltoall(const void *to, void *from, size_t bytes);
/* Each value becomes the largest, or the sum, of all ranks. */
void ranks_max(double *values, int num);
void ranks_sum(int64_t *values, int num);
int64_t ranks_most(int64_t value);
int64_t ranks_least(int64_t value);

/* A communicator of all ranks with the hints "name=value", the last one NULL; EPX_COMM_NULL if that
 * fails: the library has said why, or this has. */
EPX_Comm ranks_create_comm(const char *const hints[]);

#endif

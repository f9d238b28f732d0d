/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pretend_ipc.h - the calls of CUDA's runtime that map memory from process to process, without a
 * GPU: device memory is shared memory. Programs link it beside pretend_copies.c.
 */
#ifndef EPX_TESTS_PRETEND_IPC_H
#define EPX_TESTS_PRETEND_IPC_H

enum pretend_call { PRETEND_MALLOC, PRETEND_EXPORT, PRETEND_OPEN, PRETEND_CALLS };

/* Lets a call fail once, after so many calls that do not. */
void pretend_failure(enum pretend_call call, int after);
/* Sets whether this rank's GPU reaches the other visible GPUs, and has atomics there. */
void pretend_peers(int reachable, int atomics);
/* Allocations of this process that are not freed, and mappings that are not closed. */
int pretend_num_allocated(void);
int pretend_num_opened(void);
/* Allocations freed while another process had them mapped, and calls that are never right. */
int pretend_num_misused(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * checks.h - looks at every access of kernels to memory, which the compiler tells by calls of
 * __tsan_read4 and the like.
 */
#ifndef CHECKS_H
#define CHECKS_H

struct block;

/* The thread that calls it runs the kernels. */
void checks_begin(void);
/* The threads of a block from first to end - 1 have met. */
void checks_meet(struct block *block, int first, int end);
/* A block has ended. */
void checks_forget(struct block *block);

#endif

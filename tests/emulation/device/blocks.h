/* SPDX-License-Identifier: BSD-3-Clause */
/* blocks.h - blocks of kernels that run: their threads, warps and barriers. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include <stddef.h>

#include "emulation/include/emulation.h"

struct block;

/* Starts a block of a kernel, whose place is `index`. The launch outlives it. */
struct block *block_start(const struct emulated_kernel *launch, uint3 index);
/* Runs each thread of the block until it waits. Returns whether any did more than wait. */
int block_run(struct block *block);
int block_has_ended(const struct block *block);
void block_free(struct block *block);
/* Sets the order in which threads run; 0 = by their numbers. */
void blocks_seed(unsigned long long seed);
/* A number below `most`, by the seed; 0 without one. */
unsigned blocks_random(unsigned most);

#endif

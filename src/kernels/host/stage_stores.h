/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stage_stores.h - stores of blocks of rows into a stage that another rank reads, through the
 * caches or past them.
 *
 * A store through the caches takes the line back from the core that read it last: cheap where the
 * two have a cache in common, several times as dear as a store to memory where they have none, and
 * which of them it is changes when ranks are not bound to cores. So both are timed, for blocks of
 * about the same size. Stores go past the caches only where the other way takes more than 1.5 times
 * as long, for the reader finds in the caches what went through them; a few go the other way.
 */
#ifndef EPX_KERNELS_HOST_STAGE_STORES_H
#define EPX_KERNELS_HOST_STAGE_STORES_H

#include <stdint.h>

/* Blocks shorter than 4 KiB are not timed and go through the caches; of the others, a size is up
 * to four times as long as the one before, and the last has no end. */
enum { EPX_STORES_LEAST = 4096, EPX_STORES_SIZES = 6 };
/* The first two of every 256 blocks of a size go the slower way, to learn whether it still is. */
enum { EPX_STORES_TURN = 256, EPX_STORES_TRIALS = 2 };

struct epx_store_costs {
    uint32_t blocks;
    float ns_per_byte[2]; /* through the caches and past them; 0 = not known */
};

/* How stores into one stage go; when all is zero nothing is known yet. */
struct epx_stage_stores {
    int there; /* the stage is another rank's; else stores go through the caches */

    /* the block under way */
    int bypasses;
    int64_t bytes; /* 0 = not timed */
    int64_t began_ns;

    struct epx_store_costs costs[EPX_STORES_SIZES];
};

/* Called before and after a block of rows is stored. */
void epx_stage_stores_begin(struct epx_stage_stores *stores, int64_t rows, int64_t row_bytes);
void epx_stage_stores_end(struct epx_stage_stores *stores);

/* What begin chooses and end notes, without the clock. */
int epx_stage_stores_choose(const struct epx_stage_stores *stores, int64_t bytes);
void epx_stage_stores_note(struct epx_stage_stores *stores, int64_t bytes, int64_t ns);

#endif

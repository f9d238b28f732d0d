/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stage_stores.h - stores of blocks of rows into a stage that another rank reads, through the
 * caches or past them, as was faster.
 *
 * A store through the caches takes the line back from the core that read it last: cheap where the
 * two have a cache in common, several times as dear as a store to memory where they have none, and
 * which of them it is changes when ranks are not bound to cores. So both are timed, for blocks of
 * about the same size: nearly all go the way that was faster, a few the other. Where both are alike
 * it is through the caches, for the reader finds the rows there.
 */
#ifndef EPX_KERNELS_STAGE_STORES_H
#define EPX_KERNELS_STAGE_STORES_H

#include <stdint.h>

/* Blocks shorter than 4 KiB are not timed and go through the caches; of the others, a size is up
 * to four times as long as the one before, and the last has no end. */
enum { EPX_STORES_LEAST = 4096, EPX_STORES_SIZES = 6 };

struct epx_store_costs {
    uint32_t blocks;
    float ns_per_byte[2]; /* through the caches and past them; 0 = not known */
};

/* Of one stage; zeroed: nothing is known. */
struct epx_stage_stores {
    int there;    /* it is another rank's; else stores go through the caches */
    int bypasses; /* the block under way */
    int64_t began_ns;
    struct epx_store_costs costs[EPX_STORES_SIZES];
};

/* Before and after a block of so many bytes is stored. */
void epx_stage_stores_begin(struct epx_stage_stores *stores, int64_t bytes);
void epx_stage_stores_end(struct epx_stage_stores *stores, int64_t bytes);

/* What these do without the clock. */
int epx_stage_stores_choose(const struct epx_stage_stores *stores, int64_t bytes);
void epx_stage_stores_note(struct epx_stage_stores *stores, int64_t bytes, int64_t ns);

#endif

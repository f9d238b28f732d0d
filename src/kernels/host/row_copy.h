/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * row_copy.h - copies of rows, through the caches or past them: memory is then not read only to be
 * overwritten. Who copies decides by the number of bytes, as here, or by time (stage_stores.h).
 */
#ifndef EPX_KERNELS_HOST_ROW_COPY_H
#define EPX_KERNELS_HOST_ROW_COPY_H

#include <stdint.h>

/* Shorter rows go through the caches whatever is asked for. */
enum { EPX_BYPASS_LEAST = 256 };

/* Whether rows of so many bytes in all bypass the caches: more than these hold until somebody
 * reads them. */
int epx_rows_bypass(int64_t bytes);
/* Bypassing stores are not ordered by a release store: a fence comes before it, and before the
 * operation that made them is complete. */
void epx_row_copy(void *to, const void *from, int64_t bytes, int bypasses);
void epx_row_copy_fence(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * row_copy.h - copies of rows through the caches or past them. A copy past the caches does not read
 * memory only to overwrite it. The caller decides by the number of bytes (epx_rows_bypass) or by
 * time (stage_stores.h).
 */
#ifndef EPX_KERNELS_HOST_ROW_COPY_H
#define EPX_KERNELS_HOST_ROW_COPY_H

#include <stdint.h>

/* Shorter rows go through the caches whatever is asked for. */
enum { EPX_BYPASS_LEAST = 256 };

/* Whether rows of so many bytes in all bypass the caches: these would not hold them until somebody
 * reads them. */
int epx_rows_bypass(int64_t bytes);
/* A release store does not order stores that bypass the caches: epx_row_copy_fence comes before the
 * release store, and before the operation that copied is complete. */
void epx_row_copy(void *to, const void *from, int64_t bytes, int bypasses);
void epx_row_copy_fence(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * row_copy.h - copies of rows. Where they are more than the caches hold until somebody reads
 * them, stores bypass the caches: memory is then not read only to be overwritten.
 */
#ifndef EPX_KERNELS_ROW_COPY_H
#define EPX_KERNELS_ROW_COPY_H

#include <stdint.h>

/* Whether rows of so many bytes in all bypass the caches. */
int epx_rows_bypass(int64_t bytes);
/* Bypassing stores are not ordered by a release store: a fence comes before it, and before the
 * operation that made them is complete. */
void epx_row_copy(void *to, const void *from, int64_t bytes, int bypasses);
void epx_row_copy_fence(void);

#endif

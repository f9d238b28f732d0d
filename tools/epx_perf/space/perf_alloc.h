/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_alloc.h - host memory for the benchmark's own use. */
#ifndef EPX_PERF_ALLOC_H
#define EPX_PERF_ALLOC_H

#include <stdint.h>

/* Memory, zeroed and touched; ends the job if there is none. */
void *perf_alloc(int64_t count, int64_t size);

#endif

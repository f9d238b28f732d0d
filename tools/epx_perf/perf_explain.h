/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_explain.h - what the columns mean. */
#ifndef EPX_PERF_EXPLAIN_H
#define EPX_PERF_EXPLAIN_H

#include <stdio.h>

void perf_explain(FILE *stream);

#endif

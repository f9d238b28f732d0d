/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_sum.h - weighted sums of rows on the host. */
#ifndef EPX_PERF_PEER_SUM_H
#define EPX_PERF_PEER_SUM_H

#include <epx.h>

/* to = w[0] * rows[0] + w[1] * rows[1] + ..., in float32 (float64 for float64) */
void perf_peer_sum(EPX_Datatype datatype, const char *const rows[], const float weights[], int num,
                   int count, char *to);

#endif

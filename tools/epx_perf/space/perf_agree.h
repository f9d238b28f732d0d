/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_agree.h - whether all ranks have what a run needs. */
#ifndef EPX_PERF_AGREE_H
#define EPX_PERF_AGREE_H

/* Collective: 0, or -1 on all ranks if any gives a reason why it has none of `what`; the first of
 * those says so. */
int perf_agree(const char *what, const char *why);

#endif

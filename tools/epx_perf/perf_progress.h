/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_progress.h - one line on the user's terminal that tells how far a long run is. Launchers
 * give ranks pipes and pseudo-terminals of their own, so the line goes to /dev/tty, and only while
 * the job is in the foreground there: never into a file or a pipe. Nothing is shown before
 * perf_progress_open.
 */
#ifndef EPX_PERF_PROGRESS_H
#define EPX_PERF_PROGRESS_H

#include <stdint.h>

/* For a sweep of that many points, on one rank. */
void perf_progress_open(int points);
void perf_progress_close(void);
/* The next point of the sweep begins. */
void perf_progress_point(int tokens, int64_t row_bytes);
/* Shows the line after a second without output, and again twice a second. loop: what is counted. */
void perf_progress_show(const char *loop, int64_t iteration, int64_t iterations);
/* Takes the line away: results are printed next. */
void perf_progress_clear(void);

#endif

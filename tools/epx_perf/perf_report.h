/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_report.h - what rank 0 prints, and writes to a file. */
#ifndef EPX_PERF_REPORT_H
#define EPX_PERF_REPORT_H

#include <epx.h>
#include <stdio.h>

#include "epx_perf/bench/perf_machine.h"

struct perf_options;
struct perf_result;

/* What all points of the sweep share. */
struct perf_run {
    const struct perf_options *options;
    int rank, size;
    char transport[EPX_MAX_HINT_STRING];
    double ceiling; /* bytes a second; 0: not measured */
    struct perf_machine machine;
};

void perf_report_head(const struct perf_run *run);
void perf_report_line(const struct perf_run *run, const struct perf_result *result);
/* Warns of points where something else disturbed most iterations. */
void perf_report_noise(const struct perf_result *results, int num);
/*
 * Opens a new file, before anything is measured. NULL, having said why, if that fails. "-" is
 * standard output, and all that is printed there from then on goes to standard error.
 */
FILE *perf_report_open(const char *name);
/* Writes the results and closes the file: 0, or -1 having said that it is not written. */
int perf_report_json(FILE *file, const struct perf_run *run, const struct perf_result *results,
                     int num);

#endif

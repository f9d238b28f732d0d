/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_command_line.h - the options of a run, read from the command line. */
#ifndef EPX_PERF_COMMAND_LINE_H
#define EPX_PERF_COMMAND_LINE_H

#include <stdio.h>

struct perf_options;

/* 0, or -1 on all ranks; rank 0 has said why. */
int perf_options_read(int argc, char **argv, int rank, struct perf_options *options);
void perf_usage(FILE *stream);

#endif

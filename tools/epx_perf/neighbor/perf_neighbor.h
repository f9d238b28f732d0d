/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_neighbor.h - the sub-command neighbor: it has no tokens and no experts, but a loop and a
 * report of its own. */
#ifndef EPX_PERF_NEIGHBOR_H
#define EPX_PERF_NEIGHBOR_H

/* Whether the command line is its. */
int perf_is_neighbor(int argc, char **argv);
/* Collective; returns the exit code. */
int perf_neighbor(int argc, char **argv, int rank);

#endif

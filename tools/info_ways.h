/* SPDX-License-Identifier: BSD-3-Clause */
/* info_ways.h - what `epx_info --ways` prints. */
#ifndef EPX_TOOLS_INFO_WAYS_H
#define EPX_TOOLS_INFO_WAYS_H

/* Prints the ways of all operations on GPUs that store into each other. The shape is a list as in
 * "ranks=8,tokens=128", and what it lacks has a default; NULL = all has. Returns 0, or -1 with the
 * reason on standard error. */
int info_print_ways(const char *shape);

#endif

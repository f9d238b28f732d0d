/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_comm.h - communicators with the hints that the options ask for. */
#ifndef EPX_PERF_COMM_H
#define EPX_PERF_COMM_H

#include <epx.h>

struct perf_options;

/*
 * A communicator over all ranks. `partials` is its hint epx_combine_partials; NULL leaves it to the
 * environment. Collective: EPX_COMM_NULL if the transport is not usable; the library has said so.
 */
EPX_Comm perf_comm_create(const struct perf_options *options, const char *partials);
/* Reads a hint in force, or "unknown", into text, of EPX_MAX_HINT_STRING characters. */
void perf_read_hint(EPX_Comm comm, const char *name, char *text);
/* Ends the job if an operation failed where no request could tell. */
void perf_expect_no_error(EPX_Comm comm);

#endif

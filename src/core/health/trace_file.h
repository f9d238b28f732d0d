/* SPDX-License-Identifier: BSD-3-Clause */
/* trace_file.h - a JSON file of trace events to which all ranks of a job append. */
#ifndef EPX_CORE_HEALTH_TRACE_FILE_H
#define EPX_CORE_HEALTH_TRACE_FILE_H

#include <stdio.h>

/*
 * Appends events to the file, which is whole JSON before and after: events(to, argument) prints
 * each with a comma and a line's end behind it. A file that nobody has written to since this
 * process began is of an earlier job, and is replaced. Returns 0, or an errno.
 */
int epx_trace_file_append(const char *name, void (*events)(FILE *to, void *argument),
                          void *argument);
/* Call it before anything that ends only together with other ranks. */
void epx_trace_file_begin(void);

#endif

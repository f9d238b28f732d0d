/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_comm.c - making the communicators of a run, and asking them. */
#include "epx_perf/bench/perf_comm.h"

#include <stdio.h>
#include <string.h>

#include "epx_perf/bench/perf_options.h"
#include "epx_perf/space/perf_space.h"
#include "ranks/ranks.h"

EPX_Comm perf_comm_create(const struct perf_options *options, const char *partials)
{
    enum { HINTS = 4, HINT_BYTES = 128 };
    char texts[HINTS][HINT_BYTES];
    const char *hints[HINTS + 1] = {NULL};
    int num = 0;

    snprintf(texts[num++], HINT_BYTES, "epx_memory=%s", options->space->hint);
    if (options->transport)
        snprintf(texts[num++], HINT_BYTES, "epx_transport=%s", options->transport);
    if (options->max_sms)
        snprintf(texts[num++], HINT_BYTES, "epx_max_sms=%lld", (long long)options->max_sms);
    if (partials)
        snprintf(texts[num++], HINT_BYTES, "epx_combine_partials=%s", partials);
    for (int i = 0; i < num; i++)
        hints[i] = texts[i];
    return ranks_create_comm(hints);
}

void perf_read_hint(EPX_Comm comm, const char *name, char *text)
{
    int length = 0;

    EPX_Comm_get_hint(comm, name, text, &length);
    if (!length)
        strcpy(text, "unknown");
}

void perf_expect_no_error(EPX_Comm comm)
{
    char message[EPX_MAX_ERROR_STRING];
    int error = EPX_SUCCESS, length;

    EPX_Comm_get_async_error(comm, &error);
    if (error == EPX_SUCCESS)
        return;
    EPX_Comm_get_error_message(comm, message, &length);
    fprintf(stderr, "epx_perf: %s\n", message);
    ranks_failed();
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_comm.c - making the communicators of a run, and asking them. */
#include "epx_perf/bench/perf_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/bench/perf_options.h"
#include "epx_perf/space/perf_space.h"

static void set_number(MPI_Info info, const char *name, int64_t number)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)number);
    MPI_Info_set(info, name, text);
}

EPX_Comm perf_comm_create(const struct perf_options *options, const char *partials)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Info info;

    MPI_Info_create(&info);
    if (options->transport)
        MPI_Info_set(info, "epx_transport", options->transport);
    if (options->max_sms)
        set_number(info, "epx_max_sms", options->max_sms);
    if (partials)
        MPI_Info_set(info, "epx_combine_partials", partials);
    MPI_Info_set(info, "epx_memory", options->space->hint);
    if (EPX_Comm_create(MPI_COMM_WORLD, info, &comm) != EPX_SUCCESS)
        comm = EPX_COMM_NULL;
    MPI_Info_free(&info);
    return comm;
}

void perf_read_hint(EPX_Comm comm, const char *name, char *text)
{
    MPI_Info info;
    int found;

    EPX_Comm_get_info(comm, &info);
    MPI_Info_get(info, name, MPI_MAX_INFO_VAL, text, &found);
    if (!found)
        strcpy(text, "unknown");
    MPI_Info_free(&info);
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
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* log.c - one line a message on standard error, filtered by level. */
#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>

static atomic_int current_level = EPX_LOG_LEVEL_WARN;
static atomic_int current_rank = -1;

void epx_log_set_level(enum epx_log_level level)
{
    atomic_store(&current_level, (int)level);
}

void epx_log_set_rank(int world_rank)
{
    atomic_store(&current_rank, world_rank);
}

void epx_log_list(enum epx_log_level level, const char *format, va_list values)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char line[EPX_MAX_ERROR_STRING + 64], who[16] = "";
    int rank = atomic_load(&current_rank);

    if ((int)level > atomic_load(&current_level))
        return;
    if (rank >= 0)
        snprintf(who, sizeof(who), "[%d]", rank);
    vsnprintf(line, sizeof(line), format, values);
    fprintf(stderr, "epx%s: %s: %s\n", who, names[level], line);
}

void epx_log(enum epx_log_level level, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    epx_log_list(level, format, values);
    va_end(values);
}

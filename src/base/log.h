/* SPDX-License-Identifier: BSD-3-Clause */
/* log.h - one line a message on standard error, filtered by level. */
#ifndef EPX_BASE_LOG_H
#define EPX_BASE_LOG_H

#include <stdarg.h>

#include "epx.h"

#define EPX_PRINTF(position, first) __attribute__((format(printf, position, first)))

enum epx_log_level {
    EPX_LOG_LEVEL_ERROR,
    EPX_LOG_LEVEL_WARN,
    EPX_LOG_LEVEL_INFO,
    EPX_LOG_LEVEL_DEBUG
};

void epx_log_set_level(enum epx_log_level level);
void epx_log_set_rank(int world_rank);
void epx_log(enum epx_log_level level, const char *format, ...) EPX_PRINTF(2, 3);
void epx_log_list(enum epx_log_level level, const char *format, va_list values) EPX_PRINTF(2, 0);

#define EPX_LOG_ERROR(...) epx_log(EPX_LOG_LEVEL_ERROR, __VA_ARGS__)
#define EPX_LOG_WARN(...) epx_log(EPX_LOG_LEVEL_WARN, __VA_ARGS__)
#define EPX_LOG_INFO(...) epx_log(EPX_LOG_LEVEL_INFO, __VA_ARGS__)
#define EPX_LOG_DEBUG(...) epx_log(EPX_LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif

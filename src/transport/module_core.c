/* SPDX-License-Identifier: BSD-3-Clause */
/* module_core.c - the functions of libepx that its module calls, under the names of both sides. */
#include "core/agree.h"
#include "core/health/comm_end.h"
#include "core/progress.h"
#include "transport/module.h"

static const struct epx_core *core;

void epx_module_use(const struct epx_core *given)
{
    core = given;
}

#define DEFINE_CALL(result, name, parameters, arguments)                                           \
    result epx_##name parameters                                                                   \
    {                                                                                              \
        return core->name arguments;                                                               \
    }
#define DEFINE_RUN(name, parameters, arguments)                                                    \
    void epx_##name parameters                                                                     \
    {                                                                                              \
        core->name arguments;                                                                      \
    }

EPX_CORE_FUNCTIONS(DEFINE_CALL, DEFINE_RUN)

int epx_fail(int code, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    epx_fail_list(code, format, values);
    va_end(values);
    return code;
}

void epx_log(enum epx_log_level level, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    epx_log_list(level, format, values);
    va_end(values);
}

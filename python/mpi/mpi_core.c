/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_core.c - what the module _mpi.so calls in the glue. */
#include "mpi/mpi_parts.h"

static const struct epx_python_core *core;

/* Called when the module is opened, before anything else here. */
void epx_python_call_back(const struct epx_python_core *given)
{
    core = given;
}

int epx_python_fail(int code, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    core->fail_list(code, format, values);
    va_end(values);
    return code;
}

int epx_python_fail_alone(int code)
{
    return core->fail_alone(code);
}

int64_t epx_python_now_ns(void)
{
    return core->now_ns();
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* glue.c - the errors of the Python package, and the clock. */
#include "glue.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static _Thread_local char message[EPX_MAX_ERROR_STRING];
static _Atomic int has_timed_out, has_lost;

int epx_python_fail_list(int code, const char *format, va_list values)
{
    if (code == EPX_ERR_TIMEOUT)
        has_timed_out = 1;
    vsnprintf(message, sizeof(message), format, values);
    return code;
}

int epx_python_fail(int code, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    epx_python_fail_list(code, format, values);
    va_end(values);
    return code;
}

/* Keeps the text of an error that left no communicator. */
int epx_python_fail_alone(int code)
{
    char text[EPX_MAX_ERROR_STRING];
    int length;

    EPX_Get_error_message(text, &length);
    return epx_python_fail(code, "%s", text);
}

/* Keeps the text of an error that a call of EPX on the communicator returned; returns the code. */
int epx_python_check(const struct epx_python_comm *comm, int code)
{
    int length;

    if (code == EPX_ERR_TIMEOUT)
        has_timed_out = 1;
    if (code != EPX_SUCCESS)
        EPX_Comm_get_error_message(comm->comm, message, &length);
    return code;
}

void epx_python_message(char text[EPX_MAX_ERROR_STRING])
{
    snprintf(text, EPX_MAX_ERROR_STRING, "%s", message);
}

/* Whether a rank was late, which may be dead. */
int epx_python_has_timed_out(void)
{
    return has_timed_out;
}

/* Ranks of the process's job are dead, or count as dead: this one goes on without them. */
void epx_python_note_lost(void)
{
    has_lost = 1;
}

int epx_python_has_lost(void)
{
    return has_lost;
}

int64_t epx_python_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

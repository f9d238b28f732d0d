/* SPDX-License-Identifier: BSD-3-Clause */
/* status.c - error codes, their texts, and this thread's last error message. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

static const char *const texts[EPX_ERR_LASTCODE] = {
    [EPX_SUCCESS] = "no error",
    [EPX_ERR_ARG] = "invalid argument, or arguments that differ across ranks",
    [EPX_ERR_COMM] = "invalid communicator",
    [EPX_ERR_ROUTE] = "invalid route, or no tokens routed yet",
    [EPX_ERR_REQUEST] = "invalid request",
    [EPX_ERR_BUFFER] = "invalid, overlapping or wrongly placed buffer",
    [EPX_ERR_COUNT] = "count, length or capacity out of range",
    [EPX_ERR_TYPE] = "datatype unknown or unsuited to the operation",
    [EPX_ERR_INFO] = "hint with an invalid value",
    [EPX_ERR_TRUNCATE] = "more rows than the receive capacity",
    [EPX_ERR_PENDING] = "routes, memory or operations left over",
    [EPX_ERR_IN_STATUS] = "an operation failed, see the statuses",
    [EPX_ERR_TIMEOUT] = "a rank did not answer in time",
    [EPX_ERR_NO_MEM] = "not enough memory",
    [EPX_ERR_TRANSPORT] = "transport not usable here",
    [EPX_ERR_UNSUPPORTED] = "not supported by this build or machine",
    [EPX_ERR_NOT_INITIALIZED] = "MPI is not initialized, or already finalized",
    [EPX_ERR_MPI] = "MPI error",
    [EPX_ERR_CUDA] = "CUDA error",
    [EPX_ERR_INTERN] = "internal error",
};

static _Thread_local char message[EPX_MAX_ERROR_STRING];
static _Thread_local const char *function;
static _Thread_local int attempts; /* in an attempt */
static _Thread_local int unsaid;   /* an error of the attempt that was not logged as one */

void epx_status_enter(const char *name)
{
    function = name && *name == 'P' ? name + 1 : name;
}

const char *epx_status_function(void)
{
    return function;
}

void epx_attempt_begin(void)
{
    attempts = 1;
    unsaid = 0;
}

int epx_attempt_end(int code, int handled)
{
    attempts = 0;
    if (code != EPX_SUCCESS && unsaid && !handled)
        EPX_LOG_ERROR("%s", message);
    return code;
}

struct epx_status_place epx_status_leave(void)
{
    struct epx_status_place place = {function, attempts};

    attempts = 0;
    return place;
}

void epx_status_return(struct epx_status_place place)
{
    function = place.function;
    attempts = place.attempts;
}

int epx_fail_list(int code, const char *format, va_list values)
{
    int prefix = 0;

    if (function)
        prefix = snprintf(message, sizeof(message), "%s: ", function);
    vsnprintf(message + prefix, sizeof(message) - (size_t)prefix, format, values);
    unsaid |= attempts;
    epx_log(attempts ? EPX_LOG_LEVEL_INFO : EPX_LOG_LEVEL_ERROR, "%s", message);
    return code;
}

int epx_fail(int code, const char *format, ...)
{
    va_list values;

    va_start(values, format);
    epx_fail_list(code, format, values);
    va_end(values);
    return code;
}

int epx_fail_quietly(int code, const char *text)
{
    snprintf(message, sizeof(message), "%s", text);
    return code;
}

const char *epx_status_message(void)
{
    return message;
}

void epx_status_locate(int rank, char located[EPX_MAX_ERROR_STRING])
{
    enum { ROOM_FOR_RANK = 24 };

    snprintf(located, EPX_MAX_ERROR_STRING, "%.*s (on rank %d)",
             EPX_MAX_ERROR_STRING - ROOM_FOR_RANK, message, rank);
}

const char *epx_status_text(int code)
{
    return code >= 0 && code < EPX_ERR_LASTCODE ? texts[code] : NULL;
}

void epx_status_copy(char *string, int *resultlen, size_t max, const char *text)
{
    int length = snprintf(string, max, "%s", text);

    *resultlen = (size_t)length < max ? length : (int)max - 1;
}

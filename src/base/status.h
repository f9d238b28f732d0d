/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * status.h - error codes on their way up: the first to detect an error calls epx_fail, which
 * records and logs it with its values; everyone above passes the code on in silence.
 */
#ifndef EPX_BASE_STATUS_H
#define EPX_BASE_STATUS_H

#include "base/log.h"

/* Returns the error of a call, if it has one. */
#define EPX_TRY(call)                                                                              \
    do {                                                                                           \
        int epx_rc_ = (call);                                                                      \
        if (epx_rc_ != EPX_SUCCESS)                                                                \
            return epx_rc_;                                                                        \
    } while (0)

#define EPX_FAIL_IF(condition, code, ...)                                                          \
    do {                                                                                           \
        if (condition)                                                                             \
            return epx_fail(code, __VA_ARGS__);                                                    \
    } while (0)

/* Names the public function that this thread is in; messages start with it, without the P of
 * PEPX_. */
void epx_status_enter(const char *function);
const char *epx_status_function(void);

/* Record and log an error of this thread; return its code. */
int epx_fail(int code, const char *format, ...) EPX_PRINTF(2, 3);
int epx_fail_list(int code, const char *format, va_list values) EPX_PRINTF(2, 0);

/*
 * An attempt is a piece of work whose failure the caller may handle by doing something else. From
 * begin to end this thread records errors as always, but logs them as information alone. The end
 * logs the error of an attempt that failed on this rank, unless it is handled; returns code. There
 * are no attempts inside attempts.
 */
void epx_attempt_begin(void);
int epx_attempt_end(int code, int handled);

/* What this thread is at: the function that it is in, and whether in an attempt. Other work in
 * between, as that on other communicators, is put between these two. */
struct epx_status_place {
    const char *function;
    int attempts;
};
struct epx_status_place epx_status_leave(void);
void epx_status_return(struct epx_status_place place);

/* Records a message that another rank or another thread made, without logging it again. */
int epx_fail_quietly(int code, const char *message);

/* The message of this thread's last error. */
const char *epx_status_message(void);

/* The message of this thread's last error with the rank it happened on. */
void epx_status_locate(int rank, char located[EPX_MAX_ERROR_STRING]);

/* The fixed text of an error code; NULL if there is no such code. */
const char *epx_status_text(int code);

/* Copies a string into a public buffer of max bytes. */
void epx_status_copy(char *string, int *resultlen, size_t max, const char *text);

#endif

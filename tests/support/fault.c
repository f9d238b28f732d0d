/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.c - expects an error, its path through the error handler, and its message. */
#include "support/fault.h"

#include <stdio.h>
#include <string.h>

#include "support/suite.h"

static int handler_calls;
static char handler_text[MPI_MAX_ERROR_STRING];

static void count_error(MPI_Comm *comm, int *code, ...)
{
    int length;

    (void)comm;
    handler_calls++;
    if (MPI_Error_string(*code, handler_text, &length) != MPI_SUCCESS)
        strcpy(handler_text, "no text");
}

void fault_watch(EPX_Comm comm)
{
    MPI_Errhandler handler;

    MPI_Comm_create_errhandler(count_error, &handler);
    EXPECT_CODE(EPX_Comm_set_errhandler(comm, handler), EPX_SUCCESS);
    MPI_Errhandler_free(&handler);
}

void fault_begin(void)
{
    handler_calls = 0;
    handler_text[0] = '\0';
}

static int check_handler(const char *file, int line, const char *call, int wanted, EPX_Comm comm)
{
    char text[EPX_MAX_ERROR_STRING] = "?", message[EPX_MAX_ERROR_STRING] = "";
    int length = 0;

    if (handler_calls != 1)
        return suite_complain(file, line, call, "error handler called %d times", handler_calls);
    EPX_Error_string(wanted, text, &length);
    if (!strstr(handler_text, text))
        return suite_complain(file, line, call, "handler got \"%s\", not \"%s\"", handler_text,
                              text);
    if (EPX_Comm_get_error_message(comm, message, &length) || length < 8 ||
        (size_t)length != strlen(message))
        return suite_complain(file, line, call, "message \"%s\" of length %d", message, length);
    return 1;
}

int fault_end(const char *file, int line, const char *call, int code, int wanted, EPX_Comm comm)
{
    if (!suite_expect_code(file, line, call, code, wanted))
        return 0;
    if (comm)
        return check_handler(file, line, call, wanted, comm);
    return handler_calls == 0 || suite_complain(file, line, call, "an error handler was called");
}

int fault_message_has(EPX_Comm comm, const char *part)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    int length;

    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    return EXPECT(strstr(message, part) != NULL, "\"%s\" lacks \"%s\"", message, part);
}

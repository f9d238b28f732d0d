/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.c - expects an error, its path through the error handler, and what is said of it. */
#include "support/fault.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/suite.h"

static int handler_calls, world_calls;
static char handler_text[MPI_MAX_ERROR_STRING];

static void count_error(MPI_Comm *comm, int *code, ...)
{
    int length;

    *(*comm == MPI_COMM_WORLD ? &world_calls : &handler_calls) += 1;
    if (MPI_Error_string(*code, handler_text, &length) != MPI_SUCCESS)
        strcpy(handler_text, "no text");
}

void fault_watch(EPX_Comm comm)
{
    MPI_Errhandler handler;

    MPI_Comm_create_errhandler(count_error, &handler);
    EXPECT_CODE(EPX_Comm_set_errhandler(comm, handler), EPX_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Errhandler_free(&handler);
}

void fault_begin(void)
{
    handler_calls = world_calls = 0;
    handler_text[0] = '\0';
}

static int check_calls(const char *file, int line, const char *call, int of_comm, int of_world)
{
    if (handler_calls == of_comm && world_calls == of_world)
        return 1;
    return suite_complain(file, line, call,
                          "error handler called %d times, not %d; that of MPI_COMM_WORLD %d "
                          "times, not %d",
                          handler_calls, of_comm, world_calls, of_world);
}

static int check_text(const char *file, int line, const char *call, int wanted)
{
    char text[EPX_MAX_ERROR_STRING] = "?";
    int length;

    EPX_Error_string(wanted, text, &length);
    return strstr(handler_text, text) ||
           suite_complain(file, line, call, "handler got \"%s\"", handler_text);
}

static int check_message(const char *file, int line, const char *call, EPX_Comm comm)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    int length = 0;

    if (!EPX_Comm_get_error_message(comm, message, &length) && length >= 8 &&
        (size_t)length == strlen(message))
        return 1;
    return suite_complain(file, line, call, "message \"%s\" of length %d", message, length);
}

int fault_end(const char *file, int line, const char *call, int code, int wanted, EPX_Comm comm)
{
    return suite_expect_code(file, line, call, code, wanted) &&
           check_calls(file, line, call, comm != NULL, comm == NULL) &&
           check_text(file, line, call, wanted) && (!comm || check_message(file, line, call, comm));
}

int fault_end_untold(const char *file, int line, const char *call, int code, int wanted)
{
    return suite_expect_code(file, line, call, code, wanted) && check_calls(file, line, call, 0, 0);
}

int fault_message_has(EPX_Comm comm, const char *part)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    int length;

    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    return EXPECT(strstr(message, part) != NULL, "\"%s\" lacks \"%s\"", message, part);
}

void capture_begin(struct capture *capture)
{
    fflush(stderr);
    capture->saved = dup(STDERR_FILENO);
    capture->file = tmpfile();
    dup2(fileno(capture->file), STDERR_FILENO);
}

void capture_end(struct capture *capture, char *text, size_t size)
{
    fflush(stderr);
    dup2(capture->saved, STDERR_FILENO);
    close(capture->saved);
    rewind(capture->file);
    text[fread(text, 1, size - 1, capture->file)] = '\0';
    fclose(capture->file);
}

int capture_count(const char *text, const char *part)
{
    int count = 0;

    for (; (text = strstr(text, part)); text++)
        count++;
    return count;
}

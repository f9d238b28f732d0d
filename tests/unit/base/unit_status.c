/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_status.c - messages of errors, and the log's levels. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "control/control_mpi.h"
#include "support/suite.h"

static int fail_on(int condition)
{
    EPX_FAIL_IF(condition, EPX_ERR_COUNT, "count is %d", 7);
    return EPX_SUCCESS;
}

static int try_it(int condition, int *reached)
{
    EPX_TRY(fail_on(condition));
    *reached = 1;
    return EPX_SUCCESS;
}

START_TEST(an_error_passes_through_with_its_message)
{
    int reached = 0;

    epx_status_enter("EPX_Test");
    ck_assert_int_eq(try_it(1, &reached), EPX_ERR_COUNT);
    ck_assert_int_eq(reached, 0);
    ck_assert_str_eq(epx_status_message(), "EPX_Test: count is 7");
    ck_assert_str_eq(epx_status_function(), "EPX_Test");
    ck_assert_int_eq(try_it(0, &reached), EPX_SUCCESS);
    ck_assert_int_eq(reached, 1);
}
END_TEST

START_TEST(a_message_names_the_function_that_was_called)
{
    int reached = 0;

    epx_status_enter("PEPX_Test");
    ck_assert_int_eq(try_it(1, &reached), EPX_ERR_COUNT);
    ck_assert_str_eq(epx_status_message(), "EPX_Test: count is 7");
}
END_TEST

START_TEST(a_long_message_is_cut)
{
    char value[2 * EPX_MAX_ERROR_STRING];

    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    epx_log_set_level(EPX_LOG_LEVEL_ERROR);
    ck_assert_int_eq(epx_fail(EPX_ERR_ARG, "%s", value), EPX_ERR_ARG);
    ck_assert_uint_eq(strlen(epx_status_message()), EPX_MAX_ERROR_STRING - 1);
}
END_TEST

START_TEST(a_quiet_message_is_kept_as_it_is)
{
    ck_assert_int_eq(epx_fail_quietly(EPX_ERR_TIMEOUT, "rank 3"), EPX_ERR_TIMEOUT);
    ck_assert_str_eq(epx_status_message(), "rank 3");
}
END_TEST

START_TEST(an_mpi_error_brings_its_text)
{
    ck_assert_int_eq(epx_fail_mpi(MPI_ERR_TRUNCATE, "MPI_Recv(...)"), EPX_ERR_MPI);
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "MPI_Recv(...): "));
}
END_TEST

START_TEST(every_code_has_a_text)
{
    for (int code = 0; code < EPX_ERR_LASTCODE; code++)
        ck_assert_ptr_nonnull(epx_status_text(code));
    ck_assert_ptr_null(epx_status_text(-1));
    ck_assert_ptr_null(epx_status_text(EPX_ERR_LASTCODE));
}
END_TEST

START_TEST(a_copy_stays_within_its_buffer)
{
    char buffer[9] = "????????";
    int length;

    epx_status_copy(buffer, &length, 8, "a text that is too long");
    ck_assert_str_eq(buffer, "a text ");
    ck_assert_int_eq(length, 7);
    epx_status_copy(buffer, &length, 8, "short");
    ck_assert_str_eq(buffer, "short");
    ck_assert_int_eq(length, 5);
}
END_TEST

static void log_all(void)
{
    EPX_LOG_ERROR("error %d", 1);
    EPX_LOG_WARN("warn %d", 2);
    EPX_LOG_INFO("info %d", 3);
    EPX_LOG_DEBUG("debug %d", 4);
}

/* What the log writes at a level. */
static void logged(enum epx_log_level level, void (*speak)(void), char *text, size_t size)
{
    int saved = dup(STDERR_FILENO);
    FILE *file = tmpfile();

    dup2(fileno(file), STDERR_FILENO);
    epx_log_set_level(level);
    speak();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    fclose(file);
}

START_TEST(the_level_filters)
{
    static const char *const lines[] = {"error 1\n", "warn 2\n", "info 3\n", "debug 4\n"};
    char text[1024];

    logged((enum epx_log_level)_i, log_all, text, sizeof(text));
    for (int level = 0; level < 4; level++)
        ck_assert_int_eq(strstr(text, lines[level]) != NULL, level <= _i);
}
END_TEST

static void handle_an_error(void)
{
    epx_attempt_begin();
    ck_assert_int_eq(epx_attempt_end(epx_fail(EPX_ERR_NO_MEM, "no room"), 1), EPX_ERR_NO_MEM);
    ck_assert_str_eq(epx_status_message(), "no room");
}

static void leave_an_error(void)
{
    epx_attempt_begin();
    ck_assert_int_eq(epx_attempt_end(epx_fail(EPX_ERR_MPI, "no MPI"), 0), EPX_ERR_MPI);
    epx_fail(EPX_ERR_ARG, "no attempt");
}

/* Another rank's error, which that rank logs. */
static void leave_a_quiet_error(void)
{
    epx_attempt_begin();
    epx_attempt_end(epx_fail_quietly(EPX_ERR_MPI, "no MPI there"), 0);
}

static void work_for_others(void)
{
    struct epx_status_place place;

    epx_status_enter("EPX_Test");
    epx_attempt_begin();
    place = epx_status_leave();
    epx_status_enter("EPX_Other");
    epx_fail(EPX_ERR_MPI, "other work");
    epx_status_return(place);
    epx_fail(EPX_ERR_MPI, "own work");
    epx_attempt_end(EPX_ERR_MPI, 1);
    epx_status_enter(NULL);
}

START_TEST(an_error_in_an_attempt_is_logged_unless_it_is_handled)
{
    char text[1024];

    epx_status_enter(NULL);
    logged(EPX_LOG_LEVEL_WARN, handle_an_error, text, sizeof(text));
    ck_assert_str_eq(text, "");
    logged(EPX_LOG_LEVEL_INFO, handle_an_error, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "info: no room\n"));
    ck_assert_ptr_null(strstr(text, "error:"));
    logged(EPX_LOG_LEVEL_WARN, leave_an_error, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "error: no MPI\n"));
    ck_assert_ptr_nonnull(strstr(text, "error: no attempt\n"));
    logged(EPX_LOG_LEVEL_WARN, leave_a_quiet_error, text, sizeof(text));
    ck_assert_str_eq(text, "");
}
END_TEST

START_TEST(other_work_during_an_attempt_is_not_part_of_it)
{
    char text[1024];

    logged(EPX_LOG_LEVEL_WARN, work_for_others, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "error: EPX_Other: other work\n"));
    ck_assert_ptr_null(strstr(text, "own work"));
    ck_assert_str_eq(epx_status_message(), "EPX_Test: own work");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("status");

    tcase_add_test(tcase, an_error_passes_through_with_its_message);
    tcase_add_test(tcase, a_message_names_the_function_that_was_called);
    tcase_add_test(tcase, a_long_message_is_cut);
    tcase_add_test(tcase, a_quiet_message_is_kept_as_it_is);
    tcase_add_test(tcase, an_mpi_error_brings_its_text);
    tcase_add_test(tcase, every_code_has_a_text);
    tcase_add_test(tcase, a_copy_stays_within_its_buffer);
    tcase_add_loop_test(tcase, the_level_filters, 0, 4);
    tcase_add_test(tcase, an_error_in_an_attempt_is_logged_unless_it_is_handled);
    tcase_add_test(tcase, other_work_during_an_attempt_is_not_part_of_it);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

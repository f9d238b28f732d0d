/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_log.c - the form of a line of the log. */
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/suite.h"

static char text[4 * EPX_MAX_ERROR_STRING];
static int saved;
static FILE *file;

static void begin(void)
{
    file = tmpfile();
    fflush(stderr);
    saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
}

static void end(void)
{
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
}

START_TEST(a_line_names_rank_and_level)
{
    epx_log_set_level(EPX_LOG_LEVEL_DEBUG);
    epx_log_set_rank(12);
    begin();
    EPX_LOG_ERROR("%d of %s", 3, "four");
    EPX_LOG_WARN("w");
    EPX_LOG_INFO("i");
    EPX_LOG_DEBUG("d");
    end();
    ck_assert_str_eq(text, "epx[12]: error: 3 of four\nepx[12]: warning: w\nepx[12]: info: i\n"
                           "epx[12]: debug: d\n");
}
END_TEST

START_TEST(before_the_rank_is_known_a_line_names_none)
{
    epx_log_set_rank(-1);
    begin();
    EPX_LOG_ERROR("early");
    end();
    ck_assert_str_eq(text, "epx: error: early\n");
}
END_TEST

START_TEST(what_is_below_the_level_is_silent)
{
    epx_log_set_level(EPX_LOG_LEVEL_ERROR);
    begin();
    EPX_LOG_WARN("w");
    EPX_LOG_INFO("i");
    EPX_LOG_DEBUG("d");
    end();
    ck_assert_str_eq(text, "");
}
END_TEST

/* A whole error message fits into a line; a longer one is cut, and the line still ends. */
START_TEST(a_long_line_is_cut_and_ends)
{
    char value[2 * EPX_MAX_ERROR_STRING];

    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    epx_log_set_rank(0);
    begin();
    EPX_LOG_ERROR("%s", value);
    end();
    ck_assert_int_eq(strncmp(text, "epx[0]: error: x", 16), 0);
    ck_assert_uint_ge(strspn(strchr(text, ' ') + 8, "x"), EPX_MAX_ERROR_STRING);
    ck_assert_uint_lt(strlen(text), sizeof(value));
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");

    tcase_add_test(tcase, a_line_names_rank_and_level);
    tcase_add_test(tcase, before_the_rank_is_known_a_line_names_none);
    tcase_add_test(tcase, what_is_below_the_level_is_silent);
    tcase_add_test(tcase, a_long_line_is_cut_and_ends);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

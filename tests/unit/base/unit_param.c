/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_param.c - the table of hints: defaults, precedence, ranges, texts. */
#include "base/param.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/suite.h"

static const struct epx_param *param_of(const char *name)
{
    const struct epx_param *p = epx_param_table;

    while (p->name && strcmp(p->name, name) != 0)
        p++;
    ck_assert_ptr_nonnull(p->name);
    return p;
}

static int read_one(const char *key, const char *value, struct epx_params *params)
{
    struct epx_hints hints = {.num_unknown = 0};

    epx_hints_add(&hints, key, value);
    return epx_params_read(&hints, params);
}

static void clear_environment(void)
{
    char variable[64];

    for (const struct epx_param *p = epx_param_table; p->name; p++) {
        epx_param_variable(p, variable, sizeof(variable));
        unsetenv(variable);
    }
}

START_TEST(every_default_is_valid)
{
    struct epx_params params;
    char text[64];

    ck_assert_int_eq(epx_params_read(NULL, &params), EPX_SUCCESS);
    for (const struct epx_param *p = epx_param_table; p->name; p++) {
        epx_param_format(p, &params, text, sizeof(text));
        ck_assert_str_eq(text, p->default_value);
    }
}
END_TEST

START_TEST(every_hint_is_explained)
{
    for (const struct epx_param *p = epx_param_table; p->name; p++) {
        ck_assert_int_eq(strncmp(p->name, "epx_", 4), 0);
        ck_assert_int_eq(p->help[strlen(p->help) - 1], '.');
    }
}
END_TEST

START_TEST(the_variable_is_the_key_in_capitals)
{
    char variable[64];

    epx_param_variable(param_of("epx_timeout_ms"), variable, sizeof(variable));
    ck_assert_str_eq(variable, "EPX_TIMEOUT_MS");
    epx_param_variable(param_of("epx_timeout_ms"), variable, 5);
    ck_assert_str_eq(variable, "EPX_");
}
END_TEST

START_TEST(info_wins_over_environment_wins_over_default)
{
    struct epx_params params;

    setenv("EPX_TIMEOUT_MS", "77", 1);
    ck_assert_int_eq(epx_params_read(NULL, &params), EPX_SUCCESS);
    ck_assert_int_eq(params.timeout_ms, 77);
    ck_assert_int_eq(read_one("epx_timeout_ms", "78", &params), EPX_SUCCESS);
    ck_assert_int_eq(params.timeout_ms, 78);
    setenv("EPX_TIMEOUT_MS", "", 1);
    ck_assert_int_eq(epx_params_read(NULL, &params), EPX_SUCCESS);
    ck_assert_int_eq(params.timeout_ms, 300000);
}
END_TEST

START_TEST(ranges_include_their_ends)
{
    const struct epx_param *p = param_of("epx_window_bytes");
    struct epx_params params;
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)p->min);
    ck_assert_int_eq(read_one(p->name, text, &params), EPX_SUCCESS);
    ck_assert_int_eq(epx_param_value(p, &params), p->min);
    snprintf(text, sizeof(text), "%lld", (long long)p->max);
    ck_assert_int_eq(read_one(p->name, text, &params), EPX_SUCCESS);
    snprintf(text, sizeof(text), "%lld", (long long)p->min - 1);
    ck_assert_int_eq(read_one(p->name, text, &params), EPX_ERR_INFO);
    snprintf(text, sizeof(text), "%lld", (long long)p->max + 1);
    ck_assert_int_eq(read_one(p->name, text, &params), EPX_ERR_INFO);
}
END_TEST

START_TEST(a_refusal_names_hint_value_and_choices)
{
    struct epx_params params;

    ck_assert_int_eq(read_one("epx_progress", "maybe", &params), EPX_ERR_INFO);
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "epx_progress"));
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "maybe"));
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "calls, thread"));
    ck_assert_int_eq(read_one("epx_timeout_ms", "1x", &params), EPX_ERR_INFO);
    ck_assert_ptr_nonnull(strstr(epx_status_message(), "1x"));
}
END_TEST

static int says(const char *key, const char *value, const char *words)
{
    struct epx_params params;

    ck_assert_int_eq(read_one(key, value, &params), EPX_ERR_INFO);
    return strstr(epx_status_message(), words) != NULL;
}

START_TEST(a_refusal_names_the_word_that_was_meant)
{
    ck_assert(says("epx_transport", "shn", "; did you mean shm?"));
    ck_assert(says("epx_transport", "SHM+MPI", "; did you mean shm+mpi?"));
    ck_assert(says("epx_transport", "smh", "; did you mean shm?"));
    ck_assert(says("epx_memory", "cuda", "; did you mean cuda:device?"));
    ck_assert(says("epx_log", "wran", "; did you mean warn?"));
    ck_assert(!says("epx_transport", "x", "did you mean"));
    ck_assert(!says("epx_memory", "gpu", "did you mean"));
    ck_assert(!says("epx_log", "a word that is longer than all the words that a hint can have",
                    "did you mean"));
}
END_TEST

static char written[4 * EPX_MAX_ERROR_STRING];

/* Keeps what a warning writes in written. */
static void warn_of(const char *key)
{
    struct epx_hints hints = {.num_unknown = 0};
    int saved = dup(STDERR_FILENO);
    FILE *file = tmpfile();

    epx_hints_add(&hints, key, "1");
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    epx_params_warn(&hints);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    written[fread(written, 1, sizeof(written) - 1, file)] = '\0';
    fclose(file);
}

/* Variables are looked at once a process. */
START_TEST(what_is_like_a_hint_and_none_is_warned_of)
{
    setenv("EPX_TIMEOUT", "5", 1);
    setenv("EPX_ROOT", "/opt/epx", 1);
    setenv("EPX_DIR", "/opt/epx/lib/cmake/EPX", 1);
    setenv("EPX_ROOTS", "", 1);
    warn_of("epx_max_sm");
    ck_assert_ptr_nonnull(strstr(written, "EPX_TIMEOUT is not a hint of EPX, see epx_hints(7); "
                                          "did you mean EPX_TIMEOUT_MS?\n"));
    ck_assert_ptr_nonnull(strstr(written, "EPX_ROOTS is not a hint of EPX, see epx_hints(7)\n"));
    ck_assert_ptr_null(strstr(written, "EPX_ROOT "));
    ck_assert_ptr_null(strstr(written, "EPX_DIR"));
    ck_assert_ptr_nonnull(strstr(written, "info key epx_max_sm is not a hint of EPX, see "
                                          "epx_hints(7); did you mean epx_max_sms?\n"));
    warn_of("epx_timeout_ms");
    ck_assert_str_eq(written, "");
    unsetenv("EPX_TIMEOUT");
    unsetenv("EPX_ROOT");
    unsetenv("EPX_DIR");
    unsetenv("EPX_ROOTS");
}
END_TEST

START_TEST(every_word_is_read_back)
{
    struct epx_params params;
    char text[64];

    for (const struct epx_param *p = epx_param_table; p->name; p++)
        for (int i = 0; p->words && p->words[i]; i++) {
            ck_assert_int_eq(read_one(p->name, p->words[i], &params), EPX_SUCCESS);
            ck_assert_int_eq(epx_param_value(p, &params), i);
            epx_param_format(p, &params, text, sizeof(text));
            ck_assert_str_eq(text, p->words[i]);
        }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("param");
    TCase *tcase = tcase_create("param");

    tcase_add_checked_fixture(tcase, clear_environment, clear_environment);
    tcase_add_test(tcase, every_default_is_valid);
    tcase_add_test(tcase, every_hint_is_explained);
    tcase_add_test(tcase, the_variable_is_the_key_in_capitals);
    tcase_add_test(tcase, info_wins_over_environment_wins_over_default);
    tcase_add_test(tcase, ranges_include_their_ends);
    tcase_add_test(tcase, a_refusal_names_hint_value_and_choices);
    tcase_add_test(tcase, a_refusal_names_the_word_that_was_meant);
    tcase_add_test(tcase, what_is_like_a_hint_and_none_is_warned_of);
    tcase_add_test(tcase, every_word_is_read_back);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_nccl_open.c - which NCCL fits, if the process has loaded one. NCCL is opened once in a
 * process, so each case is a child's.
 */
#include "transport/nccl/nccl_open.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/suite.h"
#include "transport/nccl/lsa_window.h"
#include "transport/transport.h"

enum { ONE_PATCH = 1, ONE_MINOR = 100, ONE_MAJOR = 10000 };
enum outcome { REFUSED, OF_BUILD, ALIKE, BROKEN };

static int layout_is_known;
static char said[EPX_WHY_MAX]; /* why, of the child */

int epx_lsa_layout_is_known(void)
{
    return layout_is_known;
}

static void open_in_child(int to_parent, int version)
{
    char text[16], why[EPX_WHY_MAX] = "";
    enum outcome outcome = REFUSED;

    snprintf(text, sizeof(text), "%d", version);
    setenv("PRETEND_NCCL_VERSION", text, 1);
    if (!dlopen("tests/unit/transport/.libs/libnccl.so.2", RTLD_NOW | RTLD_LOCAL))
        _exit(BROKEN);
    if (epx_nccl_open(why))
        outcome = epx_nccl_is_of_build() ? OF_BUILD : ALIKE;
    _exit(write(to_parent, why, sizeof(why)) == sizeof(why) ? outcome : BROKEN);
}

/* What comes of a NCCL of this version that is loaded. */
static int opens(int version, int layout)
{
    int ends[2], status = 0;
    pid_t child;

    layout_is_known = layout;
    ck_assert_int_eq(pipe(ends), 0);
    child = fork();
    if (child == 0)
        open_in_child(ends[1], version);
    close(ends[1]);
    ck_assert_int_eq(read(ends[0], said, sizeof(said)), sizeof(said));
    close(ends[0]);
    ck_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(the_version_that_this_was_built_with_fits_always)
{
    ck_assert_int_eq(opens(NCCL_VERSION_CODE, 1), OF_BUILD);
    ck_assert_int_eq(opens(NCCL_VERSION_CODE, 0), OF_BUILD);
}
END_TEST

START_TEST(another_last_number_fits_if_the_layout_is_known)
{
    ck_assert_int_eq(opens(NCCL_VERSION_CODE + ONE_PATCH, 1), ALIKE);
    ck_assert_int_eq(opens(NCCL_VERSION_CODE - ONE_PATCH, 1), ALIKE);
    ck_assert_int_eq(opens(NCCL_VERSION_CODE + ONE_PATCH, 0), REFUSED);
}
END_TEST

START_TEST(another_middle_or_first_number_never_fits)
{
    char wanted[EPX_WHY_MAX];

    ck_assert_int_eq(opens(NCCL_VERSION_CODE + ONE_MAJOR, 1), REFUSED);
    ck_assert_int_eq(opens(NCCL_VERSION_CODE - ONE_MINOR, 1), REFUSED);
    ck_assert_int_eq(opens(NCCL_VERSION_CODE + ONE_MINOR, 1), REFUSED);
    snprintf(wanted, sizeof(wanted),
             "NCCL is of version %d.%d.%d at run time, EPX was built with %d.%d.%d", NCCL_MAJOR,
             NCCL_MINOR + 1, NCCL_PATCH, NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    ck_assert_str_eq(said, wanted);
}
END_TEST

START_TEST(a_library_that_does_not_tell_its_version_does_not_fit)
{
    ck_assert_int_eq(opens(0, 1), REFUSED);
    ck_assert_msg(strstr(said, "version 0.0.0") != NULL, "%s", said);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("nccl_open");
    TCase *tcase = tcase_create("nccl_open");

    tcase_add_test(tcase, the_version_that_this_was_built_with_fits_always);
    tcase_add_test(tcase, another_last_number_fits_if_the_layout_is_known);
    tcase_add_test(tcase, another_middle_or_first_number_never_fits);
    tcase_add_test(tcase, a_library_that_does_not_tell_its_version_does_not_fit);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

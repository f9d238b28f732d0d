/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_machine.c - the limits of control groups, in files of this program's own, and CPUs. */
#define _GNU_SOURCE
#include "base/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/suite.h"

static const char *const folders[] = {"memory", "memory/y", "x", "x/y"};
enum { FOLDERS = sizeof(folders) / sizeof(folders[0]) };
static char root[64];

static void path_of(const char *name, char path[256])
{
    snprintf(path, 256, "%s/%s", root, name);
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    path_of(name, path);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void open_root(void)
{
    char path[256];

    snprintf(root, sizeof(root), "/tmp/epx-groups-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    for (int i = 0; i < FOLDERS; i++) {
        path_of(folders[i], path);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
}

static void close_root(void)
{
    static const char *const files[] = {"groups", "x/memory.max", "x/y/memory.max",
                                        "memory/memory.limit_in_bytes"};
    char path[256];

    for (int i = 0; i < 4; i++) {
        path_of(files[i], path);
        unlink(path);
    }
    for (int i = FOLDERS - 1; i >= 0; i--) {
        path_of(folders[i], path);
        rmdir(path);
    }
    ck_assert_int_eq(rmdir(root), 0);
}

static uint64_t limit(void)
{
    char groups[256];

    path_of("groups", groups);
    return epx_machine_group_limit(groups, root);
}

START_TEST(a_machine_has_memory)
{
    ck_assert_uint_gt(epx_machine_memory(), 1 << 20);
    ck_assert_uint_lt(epx_machine_memory(), UINT64_MAX);
    ck_assert_uint_eq(epx_machine_memory(), epx_machine_memory());
}
END_TEST

START_TEST(the_least_limit_of_a_group_and_those_above_counts)
{
    write_file("groups", "1:cpu:/x\n0::/x/y\n");
    ck_assert_uint_eq(limit(), UINT64_MAX);
    write_file("x/y/memory.max", "max\n");
    ck_assert_uint_eq(limit(), UINT64_MAX);
    write_file("x/memory.max", "5000000000\n");
    ck_assert_uint_eq(limit(), 5000000000);
    write_file("x/y/memory.max", "4096\n");
    ck_assert_uint_eq(limit(), 4096);
}
END_TEST

/* In a container the folder on top is its own, whatever the path. */
START_TEST(a_group_of_the_first_version_counts)
{
    write_file("groups", "4:memory:/docker/77\n0::/\n");
    ck_assert_uint_eq(limit(), UINT64_MAX);
    write_file("memory/memory.limit_in_bytes", "7000\n");
    ck_assert_uint_eq(limit(), 7000);
}
END_TEST

START_TEST(without_groups_there_is_no_limit)
{
    ck_assert_uint_eq(limit(), UINT64_MAX);
    write_file("groups", "no groups\n0::\n");
    ck_assert_uint_eq(limit(), UINT64_MAX);
}
END_TEST

static void use_cpus(const cpu_set_t *cpus)
{
    ck_assert_int_eq(sched_setaffinity(0, sizeof(*cpus), cpus), 0);
}

/* The first CPU of a set. */
static cpu_set_t first_of(const cpu_set_t *cpus)
{
    cpu_set_t first;
    size_t i = 0;

    CPU_ZERO(&first);
    while (!CPU_ISSET(i, cpus))
        i++;
    CPU_SET(i, &first);
    return first;
}

START_TEST(other_cpus_have_another_number)
{
    cpu_set_t all, first, rest;
    int64_t of_all = epx_machine_cpus(), of_first;

    ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    ck_assert_int_eq(of_all & EPX_MACHINE_MOST_CPUS, CPU_COUNT(&all));
    first = first_of(&all);
    use_cpus(&first);
    of_first = epx_machine_cpus();
    ck_assert_int_eq(of_first & EPX_MACHINE_MOST_CPUS, 1);
    ck_assert_int_eq(of_first, epx_machine_cpus());
    if (CPU_COUNT(&all) > 1) {
        CPU_XOR(&rest, &all, &first);
        rest = first_of(&rest);
        use_cpus(&rest);
        ck_assert_int_eq(epx_machine_cpus() & EPX_MACHINE_MOST_CPUS, 1);
        ck_assert_int_ne(epx_machine_cpus(), of_first);
    }
    use_cpus(&all);
    ck_assert_int_eq(epx_machine_cpus(), of_all);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("machine");
    TCase *tcase = tcase_create("machine");

    tcase_add_checked_fixture(tcase, open_root, close_root);
    tcase_add_test(tcase, a_machine_has_memory);
    tcase_add_test(tcase, the_least_limit_of_a_group_and_those_above_counts);
    tcase_add_test(tcase, a_group_of_the_first_version_counts);
    tcase_add_test(tcase, without_groups_there_is_no_limit);
    tcase_add_test(tcase, other_cpus_have_another_number);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

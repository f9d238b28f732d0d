/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_list.c - the list of transports, and the words of the hint that names them. */
#include "transport/transport.h"

#include <string.h>

#include "control/mpi_module.h"
#include "support/suite.h"

static int is_listed(const char *name)
{
    for (const struct epx_listed *entry = epx_transports; entry->name; entry++)
        if (strcmp(entry->name, name) == 0)
            return 1;
    return 0;
}

static int num_words(const char *name)
{
    int num = 0;

    for (const char *const *word = epx_param_transports; *word; word++)
        num += strcmp(*word, name) == 0;
    return num;
}

START_TEST(every_listed_name_is_a_word_of_the_hint_once)
{
    for (const struct epx_listed *entry = epx_transports; entry->name; entry++)
        ck_assert_msg(num_words(entry->name) == 1, "%s is %d words", entry->name,
                      num_words(entry->name));
}
END_TEST

START_TEST(every_word_of_the_hint_is_auto_or_listed)
{
    ck_assert_str_eq(epx_param_transports[0], "auto");
    for (const char *const *word = epx_param_transports + 1; *word; word++)
        ck_assert_msg(is_listed(*word), "%s is not listed", *word);
}
END_TEST

/* What libepx has itself is of host memory; modules have the others. */
START_TEST(operations_are_of_the_memory_that_the_list_says)
{
    for (const struct epx_listed *entry = epx_transports; entry->name; entry++) {
        ck_assert_str_ne(entry->description, "");
        if (entry->memory == EPX_MEMORY_CUDA || strstr(entry->name, "mpi"))
            ck_assert_msg(!entry->ops, "%s", entry->name);
        else if (entry->is_built)
            ck_assert_msg(entry->ops->memory == EPX_MEMORY_SYSTEM, "%s", entry->name);
        else
            ck_assert_msg(!entry->ops, "%s", entry->name);
    }
}
END_TEST

START_TEST(the_last_of_the_list_is_usable_wherever_mpi_is)
{
    const struct epx_listed *entry = epx_transports;

    while (entry[1].name)
        entry++;
    ck_assert_str_eq(entry->name, "mpi");
    ck_assert(entry->is_built && entry->memory == EPX_MEMORY_SYSTEM);
    ck_assert_int_eq(epx_mpi_open()->transport->memory, EPX_MEMORY_SYSTEM);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("list");
    TCase *tcase = tcase_create("list");

    tcase_add_test(tcase, every_listed_name_is_a_word_of_the_hint_once);
    tcase_add_test(tcase, every_word_of_the_hint_is_auto_or_listed);
    tcase_add_test(tcase, operations_are_of_the_memory_that_the_list_says);
    tcase_add_test(tcase, the_last_of_the_list_is_usable_wherever_mpi_is);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

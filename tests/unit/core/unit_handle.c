/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_handle.c - live, null, freed and foreign handles, and those of another kind. */
#include <stdlib.h>
#include <string.h>

#include "core/handle.h"
#include "support/suite.h"

/* As large as the objects are, at the least. */
union object {
    struct epx_handle handle;
    char bytes[256];
};

static union object objects[3000];

static int says(const void *handle, enum epx_handle_kind kind, int error, const char *wanted)
{
    return epx_handle_check(handle, kind) == error && strstr(epx_status_message(), wanted) != NULL;
}

START_TEST(a_handle_is_known_from_its_addition_to_its_removal)
{
    struct epx_handle *handle = &objects[0].handle;

    ck_assert(!epx_handle_is(handle, EPX_HANDLE_COMM));
    epx_handle_add(handle, EPX_HANDLE_COMM);
    ck_assert(epx_handle_is(handle, EPX_HANDLE_COMM));
    ck_assert(!epx_handle_is(handle, EPX_HANDLE_ROUTE));
    ck_assert_int_eq(epx_handle_check(handle, EPX_HANDLE_COMM), EPX_SUCCESS);
    epx_handle_remove(handle);
    epx_handle_remove(handle);
    ck_assert(!epx_handle_is(handle, EPX_HANDLE_COMM));
    ck_assert(!epx_handle_is(NULL, EPX_HANDLE_COMM));
}
END_TEST

START_TEST(what_is_wrong_with_a_handle_is_said)
{
    struct epx_handle *comm = &objects[0].handle, *request = &objects[1].handle;

    epx_handle_add(comm, EPX_HANDLE_COMM);
    epx_handle_add(request, EPX_HANDLE_REQUEST);
    epx_handle_remove(request);
    ck_assert(says(NULL, EPX_HANDLE_COMM, EPX_ERR_COMM, "comm is EPX_COMM_NULL"));
    ck_assert(says(NULL, EPX_HANDLE_ROUTE, EPX_ERR_ROUTE, "route is EPX_ROUTE_NULL"));
    ck_assert(says(comm, EPX_HANDLE_ROUTE, EPX_ERR_ROUTE, "route is a communicator, want a route"));
    ck_assert(says(request, EPX_HANDLE_REQUEST, EPX_ERR_REQUEST, "was freed"));
    ck_assert(says(&objects[2], EPX_HANDLE_COMM, EPX_ERR_COMM, "EPX gave no such handle"));
    ck_assert(says((void *)(uintptr_t)1, EPX_HANDLE_COMM, EPX_ERR_COMM, "EPX gave no such handle"));
    epx_handle_remove(comm);
}
END_TEST

/* More handles than buckets, removed in another order than added. */
START_TEST(any_number_of_handles_is_known)
{
    enum { NUM = sizeof(objects) / sizeof(objects[0]) };

    for (int i = 0; i < NUM; i++)
        epx_handle_add(&objects[i].handle, (enum epx_handle_kind)(i % EPX_NUM_HANDLES));
    for (int removed = 0; removed < NUM; removed++) {
        int i = removed * 7 % NUM;

        ck_assert(epx_handle_is(&objects[i], (enum epx_handle_kind)(i % EPX_NUM_HANDLES)));
        epx_handle_remove(&objects[i].handle);
        ck_assert(!epx_handle_is(&objects[i], (enum epx_handle_kind)(i % EPX_NUM_HANDLES)));
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("handle");
    TCase *tcase = tcase_create("handle");

    tcase_add_test(tcase, a_handle_is_known_from_its_addition_to_its_removal);
    tcase_add_test(tcase, what_is_wrong_with_a_handle_is_said);
    tcase_add_test(tcase, any_number_of_handles_is_known);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* unit_memory.c - overlaps, segments, private windows. */
#include "base/memory.h"

#include <stdlib.h>

#include "base/machine.h"
#include "support/suite.h"

START_TEST(buffers_overlap_if_they_share_a_byte)
{
    char bytes[64] = {0};

    ck_assert(epx_memory_overlap(bytes, 64, bytes, 64));
    ck_assert(epx_memory_overlap(bytes, 10, bytes + 9, 10));
    ck_assert(epx_memory_overlap(bytes + 9, 10, bytes, 10));
    ck_assert(epx_memory_overlap(bytes, 64, bytes + 5, 1));
    ck_assert(!epx_memory_overlap(bytes, 10, bytes + 10, 10));
    ck_assert(!epx_memory_overlap(bytes + 10, 10, bytes, 10));
}
END_TEST

START_TEST(empty_and_absent_buffers_overlap_nothing)
{
    char bytes[8] = {0};

    ck_assert(!epx_memory_overlap(bytes, 0, bytes, 8));
    ck_assert(!epx_memory_overlap(bytes, 8, bytes + 2, 0));
    ck_assert(!epx_memory_overlap(NULL, 8, bytes, 8));
    ck_assert(!epx_memory_overlap(bytes, 8, NULL, 8));
}
END_TEST

START_TEST(a_segment_is_found_from_any_byte_in_it)
{
    struct epx_window *windows[2] = {epx_window_private(3, 1, 1000), epx_window_private(3, 1, 50)};
    struct epx_segment second = {.id = 8, .bytes = 50, .window = windows[1]};
    struct epx_segment first = {.id = 5, .bytes = 1000, .window = windows[0], .next = &second};
    int64_t offset = -1;

    ck_assert_ptr_eq(epx_segment_find(&first, windows[0]->own, 1000, &offset), &first);
    ck_assert_int_eq(offset, 0);
    ck_assert_ptr_eq(epx_segment_find(&first, windows[1]->own + 20, 30, &offset), &second);
    ck_assert_int_eq(offset, 20);
    ck_assert_ptr_null(epx_segment_find(&first, windows[1]->own + 20, 31, &offset));
    ck_assert_ptr_null(epx_segment_find(&first, windows[0]->own - 1, 2, &offset));
    ck_assert_ptr_null(epx_segment_find(&first, windows[0]->own + 990, SIZE_MAX, &offset));
    ck_assert_ptr_null(epx_segment_find(NULL, windows[0]->own, 1, &offset));
    ck_assert_ptr_eq(epx_segment_of_id(&first, 8), &second);
    ck_assert_ptr_null(epx_segment_of_id(&first, 6));
    epx_window_free(windows[0]);
    epx_window_free(windows[1]);
}
END_TEST

START_TEST(a_private_window_reaches_nobody_else)
{
    struct epx_window *window = epx_window_private(4, 2, 100);

    for (int r = 0; r < 4; r++)
        ck_assert_int_eq(window->address[r] != NULL, r == 2);
    ck_assert_ptr_eq(window->address[2], window->own);
    epx_window_free(window);
    epx_window_free(NULL);
}
END_TEST

START_TEST(zeroed_memory_is_zero_and_aligned)
{
    static const size_t sizes[] = {0, 1, 100, 1 << 20, 5 << 20};

    for (int i = 0; i < 5; i++) {
        unsigned char *memory = epx_memory_zeroed(sizes[i], 1);

        ck_assert_ptr_nonnull(memory);
        ck_assert_uint_eq((uintptr_t)memory % 16, 0);
        for (size_t b = 0; b < sizes[i]; b++)
            if (memory[b])
                ck_abort_msg("byte %zu is %d", b, memory[b]);
        free(memory);
    }
    ck_assert_ptr_null(epx_memory_zeroed(SIZE_MAX / 2, 4));
}
END_TEST

/* Linux would promise it where it promises everything. */
START_TEST(more_than_the_machine_has_is_refused)
{
    ck_assert_ptr_null(epx_memory_zeroed(epx_machine_memory() / 16 + 1, 16));
    ck_assert_ptr_null(epx_window_private(2, 0, epx_machine_memory() + 1));
    ck_assert_ptr_null(epx_window_private(2, 0, SIZE_MAX));
}
END_TEST

START_TEST(arrays_are_counted_and_freed_together)
{
    struct epx_arrays arrays = {0};
    int32_t *first;

    ck_assert_ptr_nonnull(EPX_ARRAY(&arrays, first, 10));
    for (int64_t i = 0; i < 20; i++)
        ck_assert_ptr_nonnull(epx_arrays_add(&arrays, i, 3));
    ck_assert_uint_eq(arrays.bytes, 40 + 3 * 190);
    ck_assert_int_eq(arrays.failed, 0);
    ck_assert_ptr_null(epx_arrays_add(&arrays, INT64_MAX, 8));
    ck_assert_int_eq(arrays.failed, 1);
    ck_assert_uint_eq(arrays.bytes, UINT64_MAX);
    epx_arrays_free(&arrays);
    ck_assert_ptr_null(arrays.first);
}
END_TEST

START_TEST(arrays_are_measured_before_they_are_had)
{
    struct epx_arrays arrays = {.measures = 1};

    ck_assert_ptr_null(epx_arrays_add(&arrays, INT64_MAX, 1));
    ck_assert_ptr_null(epx_arrays_add(&arrays, 10, 8));
    ck_assert_uint_eq(arrays.bytes, (uint64_t)INT64_MAX + 80);
    ck_assert_int_eq(arrays.failed, 0);
    ck_assert_ptr_null(arrays.first);
    epx_arrays_add(&arrays, INT64_MAX, 2);
    ck_assert_uint_eq(arrays.bytes, UINT64_MAX);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("memory");
    TCase *tcase = tcase_create("memory");

    tcase_add_test(tcase, buffers_overlap_if_they_share_a_byte);
    tcase_add_test(tcase, empty_and_absent_buffers_overlap_nothing);
    tcase_add_test(tcase, a_segment_is_found_from_any_byte_in_it);
    tcase_add_test(tcase, a_private_window_reaches_nobody_else);
    tcase_add_test(tcase, zeroed_memory_is_zero_and_aligned);
    tcase_add_test(tcase, more_than_the_machine_has_is_refused);
    tcase_add_test(tcase, arrays_are_counted_and_freed_together);
    tcase_add_test(tcase, arrays_are_measured_before_they_are_had);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

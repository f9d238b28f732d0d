/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_interrupted.c - signals interrupt the reservation of shared memory, and undo it, as on older
 * Linux: a profiler sends them all the time. The linker puts this program between the library and
 * posix_fallocate.
 */
#include <errno.h>
#include <string.h>
#include <sys/types.h>

#include "support/suite.h"

enum { BYTES = 40 << 20, TIMEOUT_MS = 700 };

static off_t longest = BYTES; /* the most bytes that are reserved between two signals */

int __real_posix_fallocate(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes);

int __wrap_posix_fallocate(int fd, off_t offset, off_t bytes)
{
    return bytes > longest ? EINTR : __real_posix_fallocate(fd, offset, bytes);
}

START_TEST(memory_is_had_between_two_signals)
{
    static const off_t lengths[] = {8 << 20, 1 << 20, 100000, 4096};
    EPX_Comm comm = suite_comm("epx_timeout_ms", "60000", NULL);
    char *base = NULL;

    longest = lengths[_i];
    EXPECT_CODE(EPX_Alloc_mem(BYTES, comm, &base), EPX_SUCCESS);
    longest = BYTES;
    SETTLE();
    memset(base, 1, BYTES);
    EXPECT_CODE(EPX_Free_mem(base, comm), EPX_SUCCESS);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

START_TEST(signals_without_end_are_an_error_in_time)
{
    EPX_Comm comm = suite_comm("epx_timeout_ms", "700", NULL);
    char *base = NULL, message[EPX_MAX_ERROR_STRING] = "";
    double start = suite_seconds(), seconds;
    int code, length;

    longest = 0;
    code = EPX_Alloc_mem(BYTES, comm, &base);
    longest = BYTES;
    seconds = suite_seconds() - start;
    EXPECT(code == EPX_ERR_NO_MEM || code == EPX_ERR_TIMEOUT, "code %d", code);
    EXPECT(seconds >= 1e-3 * TIMEOUT_MS / 2 && seconds < 4e-3 * TIMEOUT_MS + 4, "took %.1f s",
           seconds);
    EXPECT_CODE(EPX_Comm_get_error_message(comm, message, &length), EPX_SUCCESS);
    EXPECT(code != EPX_ERR_NO_MEM || strstr(message, "signals"), "\"%s\"", message);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("interrupted");
    TCase *tcase = tcase_create("interrupted");

    tcase_add_loop_test(tcase, memory_is_had_between_two_signals, 0, 4);
    tcase_add_test(tcase, signals_without_end_are_an_error_in_time);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

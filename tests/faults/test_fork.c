/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fork.c - a child of fork ends by exit, which runs the exit handlers of its parent. It ends
 * at once, and the parent's operations go on: one that is in flight, and those that come.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/exchange.h"
#include "support/suite.h"

enum { CHILD_STATUS = 7, PATIENCE_MS = 3000, LOOK_MS = 5 };

/* The exit status of a child, or -1 if it must be killed. */
static int end_of(pid_t child)
{
    int status = 0;

    for (int ms = 0; ms < PATIENCE_MS; ms += LOOK_MS) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        usleep(LOOK_MS * 1000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

static void fork_and_exit(void)
{
    pid_t child;

    fflush(NULL); /* what is in buffers would be written twice */
    child = fork();
    if (child == 0)
        exit(CHILD_STATUS);
    EXPECT(child > 0 && end_of(child) == CHILD_STATUS, "the child does not end as it should");
}

START_TEST(a_child_that_exits_does_no_harm)
{
    static const char *const progress[] = {"calls", "thread"};
    struct exchange x = {.data = {.seed = 3, .datatype = EPX_FLOAT32, .count = 4096},
                         .most_rows = 20};

    x.comm = suite_comm("epx_progress", progress[_i], "epx_window_bytes", "65536", NULL);
    for (int round = 0; round < 3; round++) {
        if (EXPECT_CODE(exchange_start(&x), EPX_SUCCESS)) {
            fork_and_exit();
            exchange_finish(&x);
        }
        exchange_free(&x);
        SETTLE();
    }
    fork_and_exit();
    suite_free_comm(&x.comm);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("fork");
    TCase *tcase = tcase_create("fork");

    tcase_add_loop_test(tcase, a_child_that_exits_does_no_harm, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

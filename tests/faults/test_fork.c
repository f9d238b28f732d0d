/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_fork.c - a child of fork ends by exit, which runs the exit handlers of its parent. It ends
 * at once, and the parent's operations go on: one that is in flight, and those that come. The child
 * has none of its parent's handles, and may make communicators of its own.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int gather_alone(const void *own, void *all, size_t bytes, void *unused)
{
    (void)unused;
    memcpy(all, own, bytes);
    return 0;
}

/* The operation of one rank, which is a communicator of its own. */
static int is_served_alone(void)
{
    static const char *const hints[] = {"epx_transport=shm", NULL};
    EPX_Bootstrap alone = EPX_BOOTSTRAP_INIT;
    const int64_t count = 1, displ = 0;
    int64_t came, at;
    EPX_Request request;
    EPX_Comm comm;
    float in = 7, out = 0;

    alone.allgather = gather_alone;
    return EPX_Comm_create_from(&alone, hints, &comm) == EPX_SUCCESS &&
           EPX_Alltoallv(&in, &count, &displ, &out, &came, &at, 1, 1, EPX_FLOAT32, comm,
                         EPX_STREAM_NULL, &request) == EPX_SUCCESS &&
           EPX_Wait(&request, MPI_STATUS_IGNORE) == EPX_SUCCESS && out == in &&
           EPX_Comm_free(&comm) == EPX_SUCCESS;
}

/* In the child: each call of what the parent has is refused, and the child goes on. */
static int status_of_calls(const struct exchange *x, EPX_Route route)
{
    EPX_Comm comm = x->comm;
    EPX_Request request = x->request;
    int done;

    if (EPX_Wait(&request, MPI_STATUS_IGNORE) != EPX_ERR_REQUEST ||
        EPX_Test(&request, &done, MPI_STATUS_IGNORE) != EPX_ERR_REQUEST)
        return 1;
    if (EPX_Route_free(&route) != EPX_ERR_ROUTE || EPX_Comm_free(&comm) != EPX_ERR_COMM)
        return 2;
    if (EPX_Comm_create(MPI_COMM_SELF, MPI_INFO_NULL, &comm) != EPX_ERR_NOT_INITIALIZED)
        return 3;
    return is_served_alone() ? CHILD_STATUS : 4;
}

/* The child calls EPX first if there is an exchange that the parent has in flight; it must not call
 * the error handler of MPI. What is in buffers would be written twice. */
static void fork_and_exit(const struct exchange *x, EPX_Route route)
{
    int status;
    pid_t child;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    fflush(NULL);
    child = fork();
    if (child == 0)
        exit(x ? status_of_calls(x, route) : CHILD_STATUS);
    status = end_of(child);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EXPECT(child > 0 && status == CHILD_STATUS, "the child ends with %d", status);
}

START_TEST(a_child_that_exits_does_no_harm)
{
    static const char *const progress[] = {"calls", "thread"};
    struct exchange x = {.data = {.seed = 3, .datatype = EPX_FLOAT32, .count = 4096},
                         .most_rows = 20};
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;

    attr.num_experts = 2;
    attr.top_k = attr.max_tokens = 1;
    x.comm = suite_comm("epx_progress", progress[_i], "epx_window_bytes", "65536", NULL);
    EXPECT_CODE(EPX_Route_create(&attr, x.comm, &route), EPX_SUCCESS);
    for (int round = 0; round < 3; round++) {
        if (EXPECT_CODE(exchange_start(&x), EPX_SUCCESS)) {
            fork_and_exit(NULL, EPX_ROUTE_NULL);
            fork_and_exit(&x, route);
            exchange_finish(&x);
        }
        exchange_free(&x);
        SETTLE();
    }
    fork_and_exit(NULL, EPX_ROUTE_NULL);
    EXPECT_CODE(EPX_Route_free(&route), EPX_SUCCESS);
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

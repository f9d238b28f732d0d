/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_threads.c - one communicator a thread, where MPI provides MPI_THREAD_MULTIPLE. On a device
 * ranks queue the kernels of their threads in different orders, so no two streams may share a
 * connection to it.
 */
#include <pthread.h>
#include <stdio.h>

#include "support/operation.h"
#include "support/space.h"
#include "support/suite.h"

enum { THREADS = 3, CALLS = 10 };

/* Device memory is made before and freed after: both can wait for the kernels of all threads. */
struct worker {
    pthread_t thread;
    EPX_Comm comm;
    struct layer layer;
    struct routing routings[CALLS];
    struct operation ops[CALLS][VERBS];
};

static void open_worker(struct worker *worker, const char *progress)
{
    struct scenario s = scenario_small(EPX_BFLOAT16);

    worker->comm = suite_comm("epx_progress", progress, NULL);
    layer_open(&worker->layer, &s, worker->comm);
    SETTLE();
    worker->layer.stream = space_new_stream();
    for (int call = 0; call < CALLS; call++) {
        routing_prepare(&worker->routings[call], &worker->layer, (uint64_t)call);
        for (int i = 0; i < VERBS; i++)
            operation_prepare(&worker->ops[call][i], &worker->routings[call], (enum verb)i,
                              (uint64_t)call);
    }
}

static void close_worker(struct worker *worker)
{
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < VERBS; i++)
            operation_free(&worker->ops[call][i]);
        routing_free(&worker->routings[call]);
    }
    space_free_stream(worker->layer.stream);
    layer_close(&worker->layer);
    EXPECT_CODE(EPX_Comm_free(&worker->comm), EPX_SUCCESS);
}

static void run_verbs(struct routing *routing, struct operation ops[VERBS])
{
    EXPECT_CODE(routing_call(routing), EPX_SUCCESS);
    for (int i = 0; i < VERBS; i++)
        EXPECT_CODE(operation_call(&ops[i]), EPX_SUCCESS);
    for (int i = VERBS - 1; i >= 0; i--)
        operation_finish(&ops[i]);
    routing_finish(routing);
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    space_enter_thread();
    for (int call = 0; call < CALLS; call++)
        run_verbs(&worker->routings[call], worker->ops[call]);
    return NULL;
}

static void run_threads(const char *progress)
{
    static struct worker workers[THREADS];

    for (int i = 0; i < THREADS; i++)
        open_worker(&workers[i], progress);
    SETTLE();
    for (int i = 0; i < THREADS; i++)
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    SETTLE();
    for (int i = 0; i < THREADS; i++)
        close_worker(&workers[i]);
    SETTLE();
}

static int thread_multiple(void)
{
    int provided;

    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE && suite_rank == 0)
        printf("MPI provides no MPI_THREAD_MULTIPLE: nothing run\n");
    return provided == MPI_THREAD_MULTIPLE;
}

START_TEST(each_thread_has_its_communicator)
{
    if (thread_multiple())
        run_threads("calls");
}
END_TEST

START_TEST(each_thread_has_its_communicator_with_a_progress_thread)
{
    if (thread_multiple())
        run_threads("thread");
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("threads");
    TCase *tcase = tcase_create("threads");

    tcase_add_test(tcase, each_thread_has_its_communicator);
    tcase_add_test(tcase, each_thread_has_its_communicator_with_a_progress_thread);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* test_threads.c - one communicator a thread, where MPI provides MPI_THREAD_MULTIPLE. */
#include <pthread.h>
#include <stdio.h>

#include "operation.h"
#include "suite.h"

#define THREADS 3

struct worker {
    pthread_t thread;
    EPX_Comm comm;
    struct layer layer;
};

static void run_verbs(struct worker *worker, uint64_t seed)
{
    struct operation ops[VERBS];
    struct routing routing;

    EXPECT_CODE(routing_start(&routing, &worker->layer, seed), EPX_SUCCESS);
    for (int i = 0; i < VERBS; i++)
        EXPECT_CODE(operation_start(&ops[i], &routing, (enum verb)i, seed), EPX_SUCCESS);
    for (int i = VERBS - 1; i >= 0; i--)
        operation_finish(&ops[i]);
    routing_finish(&routing);
    for (int i = 0; i < VERBS; i++)
        operation_free(&ops[i]);
    routing_free(&routing);
}

static void *work(void *argument)
{
    for (uint64_t call = 0; call < 10; call++)
        run_verbs(argument, call);
    return NULL;
}

static void run_threads(const char *progress)
{
    struct scenario s = scenario_small(EPX_BFLOAT16);
    struct worker workers[THREADS];

    for (int i = 0; i < THREADS; i++) {
        workers[i].comm = suite_comm("epx_progress", progress, NULL);
        layer_open(&workers[i].layer, &s, workers[i].comm);
        SETTLE();
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    SETTLE();
    for (int i = 0; i < THREADS; i++) {
        layer_close(&workers[i].layer);
        EXPECT_CODE(EPX_Comm_free(&workers[i].comm), EPX_SUCCESS);
    }
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

/* SPDX-License-Identifier: BSD-3-Clause */
/* suite.c - a Check suite that all ranks run together. */
#include "support/suite.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "support/space.h"

#define SHOWN_MAX 40

int suite_rank, suite_size;
int *suite_nodes;

static int complaints, shown;

int suite_complain(const char *file, int line, const char *condition, const char *format, ...)
{
    char text[1024];
    va_list args;

    __atomic_add_fetch(&complaints, 1, __ATOMIC_RELAXED);
    if (shown++ >= SHOWN_MAX)
        return 0;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "rank %d of %d: %s:%d: %s: %s\n", suite_rank, suite_size, file, line, condition,
            text);
    return 0;
}

int suite_complaints(void)
{
    int all = 0;

    MPI_Allreduce(&complaints, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    complaints = 0;
    return all;
}

int suite_own_complaints(void)
{
    return complaints;
}

int suite_expect_code(const char *file, int line, const char *call, int code, int wanted)
{
    char got[EPX_MAX_ERROR_STRING] = "?", want[EPX_MAX_ERROR_STRING] = "?";
    int length;

    if (code == wanted)
        return 1;
    EPX_Error_string(code, got, &length);
    EPX_Error_string(wanted, want, &length);
    return suite_complain(file, line, call, "gave %d (%s), not %d (%s)", code, got, wanted, want);
}

static MPI_Info info_from(const char *key, va_list args)
{
    MPI_Info info;

    MPI_Info_create(&info);
    for (; key; key = va_arg(args, const char *))
        MPI_Info_set(info, key, va_arg(args, const char *));
    return info;
}

MPI_Info suite_info(const char *key, ...)
{
    MPI_Info info;
    va_list args;

    va_start(args, key);
    info = info_from(key, args);
    va_end(args);
    return info;
}

EPX_Comm suite_comm(const char *key, ...)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Info info;
    va_list args;

    va_start(args, key);
    info = info_from(key, args);
    va_end(args);
    EXPECT_CODE(EPX_Comm_create(MPI_COMM_WORLD, info, &comm), EPX_SUCCESS);
    MPI_Info_free(&info);
    SETTLE();
    return comm;
}

void suite_free_comm(EPX_Comm *comm)
{
    EPX_Stats stats = EPX_STATS_INIT;

    EXPECT_CODE(EPX_Comm_get_stats(*comm, &stats), EPX_SUCCESS);
    EXPECT(stats.host_syncs == 0, "%llu host syncs", (unsigned long long)stats.host_syncs);
    EXPECT_CODE(EPX_Comm_free(comm), EPX_SUCCESS);
    SETTLE();
}

void suite_add_fixture(TCase *tcase, void (*open)(void), void (*close)(void))
{
    enum { MANY_RANKS = 4 };

    if (space_is_device() || suite_size >= MANY_RANKS)
        tcase_add_unchecked_fixture(tcase, open, close);
    else
        tcase_add_checked_fixture(tcase, open, close);
}

const char *suite_transport(void)
{
    const char *transport = getenv("EPX_TRANSPORT");

    return transport && *transport ? transport : "auto";
}

int suite_stores_on_devices(void)
{
    return !strcmp(suite_transport(), "lsa") || !strcmp(suite_transport(), "ipc");
}

int suite_wide_partials(void)
{
    const char *partials = getenv("EPX_COMBINE_PARTIALS");

    return partials && strcmp(partials, "float32") == 0;
}

int suite_by_choice(void)
{
    const char *order = getenv("EPX_COMBINE_ORDER");

    return order && strcmp(order, "choice") == 0;
}

double suite_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void suite_sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&time, NULL);
}

void suite_skip(const char *reason)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == 0)
        printf("SKIP: %s\n", reason);
    fflush(stdout);
    MPI_Finalize();
    exit(0);
}

static int run_here(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, suite_rank == 0 ? CK_NORMAL : CK_SILENT);
    failed = srunner_ntests_failed(runner) + (srunner_ntests_run(runner) == 0);
    srunner_free(runner);
    return failed;
}

/* Finds each rank's node: first known by its lowest rank, then by the number of such ranks
 * below. */
static void find_nodes(void)
{
    MPI_Comm node;
    int lowest = suite_rank, nodes = 0;

    suite_nodes = calloc((size_t)suite_size, sizeof(*suite_nodes));
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, suite_rank, MPI_INFO_NULL, &node);
    MPI_Bcast(&lowest, 1, MPI_INT, 0, node);
    MPI_Comm_free(&node);
    MPI_Allgather(&lowest, 1, MPI_INT, suite_nodes, 1, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < suite_size; r++)
        suite_nodes[r] = suite_nodes[r] == r ? nodes++ : suite_nodes[suite_nodes[r]];
}

/* Takes pretended nodes from the environment, where the library finds them too. */
static void pretend_nodes(void)
{
    const char *pretended = getenv("EPX_RANKS_PER_NODE");
    int per_node = pretended ? atoi(pretended) : 0;

    for (int r = 0; per_node && r < suite_size; r++)
        suite_nodes[r] = r / per_node;
}

static int rank_on_node(void)
{
    int before = 0;

    for (int r = 0; r < suite_rank; r++)
        before += suite_nodes[r] == suite_nodes[suite_rank];
    return before;
}

void suite_init(int *argc, char ***argv)
{
    int provided;

    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &suite_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &suite_size);
    find_nodes();
    space_init(rank_on_node());
    pretend_nodes();
}

int suite_main(int *argc, char ***argv, Suite *(*make)(void))
{
    int failed, most;

    suite_init(argc, argv);
    failed = run_here(make());
    MPI_Allreduce(&failed, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    if (suite_rank == 0)
        printf(most ? " Found %d errors\n" : " No Errors\n", most);
    return most ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * time_creation.c - how long ranks take to make a communicator, and what memory it takes of each.
 *
 *   time_creation RANKS [TIMES]            ranks that fork starts, without MPI
 *   mpiexec -n RANKS time_creation [TIMES] ranks of MPI, whose control plane is MPI, or sockets
 *
 * The time of a creation is that of the slowest rank, from when all are there; printed is the
 * median. CPU is the mean time of a processor that a rank took for one. Memory is Pss, in which
 * what several ranks map counts as a part for each. Every communicator moves rows once.
 */
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "epx.h"

enum { MOST_RANKS = 1024, MOST_BYTES = 1024, MOST_TIMES = 100 };

/* Memory of the ranks that fork starts. */
static struct board {
    pthread_barrier_t barrier;
    double numbers[MOST_RANKS];
    char bytes[MOST_RANKS][MOST_BYTES];
} * board;

struct job {
    int rank, size, times, by_mpi;
};

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static double cpu_ms(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return 1e3 * (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-3 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* Pss of this process in KiB; 0 where the system does not tell. */
static double memory_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double kib = 0;

    while (file && fgets(line, sizeof(line), file))
        if (strncmp(line, "Pss:", 4) == 0)
            kib = strtod(line + 4, NULL);
    if (file)
        fclose(file);
    return kib;
}

static void wait_for_all(const struct job *job)
{
    if (job->by_mpi)
        MPI_Barrier(MPI_COMM_WORLD);
    else
        pthread_barrier_wait(&board->barrier);
}

/* The largest number of all ranks, or their mean. */
static double fold(const struct job *job, double number, int mean)
{
    double result = 0;

    if (job->by_mpi) {
        MPI_Allreduce(&number, &result, 1, MPI_DOUBLE, mean ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD);
    } else {
        board->numbers[job->rank] = number;
        wait_for_all(job);
        for (int r = 0; r < job->size; r++)
            result = mean ? result + board->numbers[r]
                          : (result > board->numbers[r] ? result : board->numbers[r]);
        wait_for_all(job);
    }
    return mean ? result / job->size : result;
}

static int gather(const void *own, void *all, size_t bytes, void *arg)
{
    const struct job *job = arg;

    if (bytes > MOST_BYTES)
        return 1;
    memcpy(board->bytes[job->rank], own, bytes);
    wait_for_all(job);
    for (int r = 0; r < job->size; r++)
        memcpy((char *)all + (size_t)r * bytes, board->bytes[r], bytes);
    wait_for_all(job);
    return 0;
}

static int create_from(struct job *job, EPX_Comm *comm)
{
    static const char *const hints[] = {"epx_window_bytes=65536", "epx_log=error", NULL};
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;

    bootstrap.rank = job->rank;
    bootstrap.num_ranks = job->size;
    bootstrap.allgather = gather;
    bootstrap.arg = job;
    return EPX_Comm_create_from(&bootstrap, hints, comm);
}

static int create_by_mpi(const char *control, EPX_Comm *comm)
{
    MPI_Info info;
    int rc;

    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_control", control);
    MPI_Info_set(info, "epx_window_bytes", "65536");
    MPI_Info_set(info, "epx_log", "error");
    rc = EPX_Comm_create(MPI_COMM_WORLD, info, comm);
    MPI_Info_free(&info);
    return rc;
}

static void must(int rc)
{
    char message[EPX_MAX_ERROR_STRING];
    int length;

    if (rc == EPX_SUCCESS)
        return;
    EPX_Get_error_message(message, &length);
    fprintf(stderr, "time_creation: %s\n", message);
    exit(EXIT_FAILURE);
}

/* A row of this rank's number to each rank. */
static void move_rows(const struct job *job, EPX_Comm comm)
{
    static int64_t counts[2][MOST_RANKS], displs[2][MOST_RANKS];
    static int32_t sent[1], received[MOST_RANKS];
    EPX_Request request;

    sent[0] = job->rank;
    for (int r = 0; r < job->size; r++)
        counts[0][r] = 1;
    must(EPX_Alltoallv(sent, counts[0], displs[0], received, counts[1], displs[1], job->size, 1,
                       EPX_FLOAT32, comm, EPX_STREAM_NULL, &request));
    must(EPX_Wait(&request, MPI_STATUS_IGNORE));
    for (int r = 0; r < job->size; r++)
        if (received[r] != r) {
            fprintf(stderr, "time_creation: %d from rank %d\n", received[r], r);
            exit(EXIT_FAILURE);
        }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* What one way to make a communicator takes. */
struct cost {
    const char *control;
    double ms[MOST_TIMES], cpu_ms, kib;
};

/* The first creation of a kind pays for what the library sets up once: only its memory counts. */
static void measure(struct job *job, struct cost *cost, int number)
{
    EPX_Comm comm = EPX_COMM_NULL;
    double before = memory_kib(), start, cpu;

    wait_for_all(job);
    start = now_ms();
    cpu = cpu_ms();
    must(job->by_mpi ? create_by_mpi(cost->control, &comm) : create_from(job, &comm));
    start = now_ms() - start;
    cpu = cpu_ms() - cpu;
    if (number < 0) {
        cost->kib = fold(job, memory_kib() - before, 1);
    } else {
        cost->ms[number] = fold(job, start, 0);
        cost->cpu_ms += fold(job, cpu, 1) / job->times;
    }
    move_rows(job, comm);
    must(EPX_Comm_free(&comm));
}

static void report(const struct job *job, struct cost *cost)
{
    qsort(cost->ms, (size_t)job->times, sizeof(*cost->ms), compare);
    if (job->rank == 0)
        printf(
            "%d ranks, %s: median %.1f ms, least %.1f, most %.1f; CPU %.1f ms, %.0f KiB a rank\n",
            job->size, cost->control, cost->ms[job->times / 2], cost->ms[0],
            cost->ms[job->times - 1], cost->cpu_ms, cost->kib);
}

static int run(struct job *job)
{
    static struct cost costs[] = {{"sockets", {0}, 0, 0}, {"mpi", {0}, 0, 0}};
    const int num = job->by_mpi ? 2 : 1;

    for (int i = -1; i < job->times; i++)
        for (int k = 0; k < num; k++)
            measure(job, &costs[k], i);
    for (int k = 0; k < num; k++)
        report(job, &costs[k]);
    if (job->rank == 0)
        printf(" No Errors\n");
    return 0;
}

static int run_by_mpi(struct job *job)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job->size);
    run(job);
    MPI_Finalize();
    return 0;
}

static int run_by_fork(struct job *job)
{
    pthread_barrierattr_t attr;
    int status, failed = 0;

    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return EXIT_FAILURE;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&board->barrier, &attr, (unsigned)job->size);
    for (job->rank = 0; job->rank < job->size; job->rank++)
        if (fork() == 0)
            exit(run(job));
    while (wait(&status) > 0 || errno == EINTR)
        failed |= status;
    return failed != 0;
}

int main(int argc, char **argv)
{
    const int by_mpi = getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK");
    struct job job = {.times = 11, .by_mpi = by_mpi};

    if (!by_mpi)
        job.size = argc > 1 ? atoi(argv[1]) : 0;
    if (argc > 2 - by_mpi)
        job.times = atoi(argv[2 - by_mpi]);
    if (job.times < 1 || job.times > MOST_TIMES || (!by_mpi && job.size < 1) ||
        job.size > MOST_RANKS) {
        fprintf(stderr, "usage: time_creation RANKS [TIMES], or by mpiexec without RANKS\n");
        return EXIT_FAILURE;
    }
    return by_mpi ? run_by_mpi(&job) : run_by_fork(&job);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_perf.c - times the collectives over a sweep of tokens and row lengths. */
#include <stdlib.h>
#include <string.h>

#include "epx_perf.h"

enum { MAX_POINTS = 1024 };

/* EPX_COMM_NULL if the transport is not usable; the library has said so. */
static EPX_Comm create_comm(const struct perf_options *options)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Info info;

    MPI_Info_create(&info);
    if (options->transport)
        MPI_Info_set(info, "epx_transport", options->transport);
    MPI_Info_set(info, "epx_memory", "system");
    if (EPX_Comm_create(MPI_COMM_WORLD, info, &comm) != EPX_SUCCESS)
        comm = EPX_COMM_NULL;
    MPI_Info_free(&info);
    return comm;
}

static void read_transport(EPX_Comm comm, char *transport)
{
    MPI_Info info;
    int found;

    EPX_Comm_get_info(comm, &info);
    MPI_Info_get(info, "epx_transport", MPI_MAX_INFO_VAL, transport, &found);
    if (!found)
        strcpy(transport, "unknown");
    MPI_Info_free(&info);
}

static void measure_point(const struct perf_options *options, EPX_Comm comm, int tokens,
                          int64_t row_bytes, struct perf_result *result)
{
    struct perf_bench bench;

    perf_bench_create(options, tokens, row_bytes, comm, &bench);
    perf_measure(&bench, result);
    if (bench.load.rank == 0)
        perf_report_line(options, result);
    perf_bench_free(&bench);
}

static int64_t next(int64_t size)
{
    return size ? 2 * size : 1;
}

/* The number of points. */
static int sweep(const struct perf_options *options, EPX_Comm comm, struct perf_result *results)
{
    int num = 0;

    for (int64_t t = options->tokens.min; t <= options->tokens.max; t = next(t))
        for (int64_t b = options->row_bytes.min; b <= options->row_bytes.max; b = next(b))
            if (num < MAX_POINTS)
                measure_point(options, comm, (int)t, b, &results[num++]);
    return num;
}

static int run(const struct perf_options *options, int rank, int size)
{
    struct perf_result *results;
    char transport[MPI_MAX_INFO_VAL + 1];
    EPX_Comm comm = create_comm(options);
    int num, failed = 0;

    if (!comm)
        return EXIT_FAILURE;
    results = perf_alloc(MAX_POINTS, sizeof(*results));
    read_transport(comm, transport);
    if (rank == 0)
        perf_report_head(options, size, transport);
    num = sweep(options, comm, results);
    EPX_Comm_free(&comm);
    for (int i = 0; i < num; i++)
        failed |= results[i].wrong_rows != 0;
    if (rank == 0 && options->check && !failed)
        puts("# every row right");
    if (rank == 0 && options->json)
        failed |= perf_report_json(options, size, transport, results, num);
    free(results);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    struct perf_options options;
    int rank, size, rc = EXIT_SUCCESS;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (perf_options_read(argc, argv, rank, &options))
        rc = 2;
    else if (options.usage && rank == 0)
        perf_usage(stdout);
    else if (!options.usage)
        rc = run(&options, rank, size);
    MPI_Finalize();
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_perf.c - a benchmark of the collectives over a sweep of tokens and row lengths. Its layers,
 * lowest first: space/ is the memory that a run works on, and its clock; bench/ is what EPX works
 * on at one point of the sweep; peer/ comes to the same result without EPX; neighbor/ is a
 * benchmark of its own, of exchanges with neighbours; and this folder has
 * the command line, the sub-commands, the checks, the loop that takes the times, and the report.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/bench/perf_bench.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/neighbor/perf_neighbor.h"
#include "epx_perf/peer/perf_peer.h"
#include "epx_perf/bench/perf_comm.h"
#include "epx_perf/perf_command_line.h"
#include "epx_perf/perf_error.h"
#include "epx_perf/perf_expect.h"
#include "epx_perf/perf_explain.h"
#include "epx_perf/perf_measure.h"
#include "epx_perf/perf_overlap.h"
#include "epx_perf/perf_progress.h"
#include "epx_perf/perf_report.h"
#include "epx_perf/space/perf_agree.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"
#include "watch/mpi_watch.h"

enum { MAX_POINTS = 1024 };

/* Makes the bench, its peer and the rows to expect, ready for the first operation. */
static int create_point(const struct perf_options *options, int tokens, int64_t row_bytes,
                        EPX_Comm comm, struct perf_bench *bench)
{
    if (perf_bench_create(options, tokens, row_bytes, comm, bench))
        return -1;
    if (options->peer && !(bench->peer = perf_peer_create(bench))) {
        perf_bench_free(bench);
        return -1;
    }
    if (options->check)
        perf_expect_create(bench);
    if (options->verb->prepare)
        options->verb->prepare(bench);
    return 0;
}

static void free_point(struct perf_bench *bench)
{
    perf_expect_free(bench);
    perf_peer_free(bench->peer);
    perf_bench_free(bench);
}

static int measure_point(const struct perf_run *run, EPX_Comm comm, int tokens, int64_t row_bytes,
                         struct perf_result *result)
{
    struct perf_bench bench;

    if (create_point(run->options, tokens, row_bytes, comm, &bench))
        return -1;
    perf_progress_point(tokens, row_bytes);
    perf_measure(&bench, result);
    perf_overlap(&bench, result);
    perf_expect_no_error(comm);
    perf_progress_clear();
    free_point(&bench);
    if (perf_error_wanted(run->options) &&
        perf_error_measure(run->options, tokens, row_bytes, result->errors))
        return -1;
    if (run->rank == 0)
        perf_report_line(run, result);
    return 0;
}

static int64_t next(int64_t size)
{
    return size ? 2 * size : 1;
}

static int count_points(const struct perf_options *options)
{
    int num = 0;

    for (int64_t t = options->tokens.min; t <= options->tokens.max; t = next(t))
        for (int64_t b = options->row_bytes.min; b <= options->row_bytes.max; b = next(b))
            num += num < MAX_POINTS;
    return num;
}

/* Returns the number of points; -1 if one could not be set up. */
static int sweep(const struct perf_run *run, EPX_Comm comm, struct perf_result *results)
{
    const struct perf_options *options = run->options;
    int num = 0;

    for (int64_t t = options->tokens.min; t <= options->tokens.max; t = next(t))
        for (int64_t b = options->row_bytes.min; b <= options->row_bytes.max; b = next(b))
            if (num < MAX_POINTS && measure_point(run, comm, (int)t, b, &results[num++]))
                return -1;
    return num;
}

/* Opens the file for the results on rank 0; 0, or -1 on all ranks if that fails. */
static int open_json(const struct perf_options *options, int rank, FILE **json)
{
    int failed;

    *json = rank == 0 && options->json ? perf_report_open(options->json) : NULL;
    failed = rank == 0 && options->json && !*json;
    ranks_bcast(&failed, sizeof(failed));
    return failed ? -1 : 0;
}

static int any_wrong(const struct perf_result *results, int num)
{
    for (int i = 0; i < num; i++)
        if (results[i].wrong_rows)
            return 1;
    return 0;
}

static int measure(struct perf_run *run, EPX_Comm comm, FILE *json)
{
    struct perf_result *results = perf_alloc(MAX_POINTS, sizeof(*results));
    const struct perf_options *options = run->options;
    int num, failed;

    perf_read_hint(comm, "epx_transport", run->transport);
    if (options->ceiling)
        run->ceiling = options->space->ceiling(options->space);
    if (run->rank == 0)
        perf_report_head(run);
    if (run->rank == 0)
        perf_progress_open(count_points(options));
    num = sweep(run, comm, results);
    perf_progress_close();
    if (run->rank == 0)
        perf_report_noise(results, num);
    failed = any_wrong(results, num);
    if (run->rank == 0 && options->check && num >= 0 && !failed)
        fputs("# every row right\n", stdout); /* puts writes twice if nothing is buffered */
    if (json)
        failed |= perf_report_json(json, run, results, num);
    free(results);
    return num < 0 ? 2 : failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int measure_with_peer(struct perf_run *run, FILE *json)
{
    const struct perf_peer_kind *peer = run->options->peer;
    EPX_Comm comm = perf_comm_create(run->options, NULL);
    int rc = EXIT_FAILURE;

    if (!comm)
        return EXIT_FAILURE;
    if (ranks_by_mpi())
        mpi_watch_open("epx_perf", comm);
    if (!peer || perf_peer_open(peer) == 0) {
        rc = measure(run, comm, json);
        if (peer)
            perf_peer_close(peer);
    }
    EPX_Comm_free(&comm);
    return rc;
}

static int open_space(const struct perf_options *options)
{
    if (options->space->open())
        return -1;
    return options->overlap ? perf_agree("cuBLAS", options->space->open_gemm()) : 0;
}

static int run(const struct perf_options *options, int rank)
{
    struct perf_run run = {.options = options, .rank = rank};
    FILE *json;
    int rc;

    run.size = ranks_num();
    perf_machine_read(&run.machine);
    if (open_space(options))
        return EXIT_FAILURE;
    rc = open_json(options, rank, &json) ? EXIT_FAILURE : measure_with_peer(&run, json);
    options->space->close();
    return rc;
}

int main(int argc, char **argv)
{
    struct perf_options options;
    int rank, rc = EXIT_SUCCESS;

    ranks_start("epx_perf", &argc, &argv);
    rank = ranks_own();
    if (perf_is_neighbor(argc, argv))
        rc = perf_neighbor(argc, argv, rank);
    else if (perf_options_read(argc, argv, rank, &options))
        rc = 2;
    else if (options.usage && rank == 0)
        perf_usage(stdout);
    else if (options.explain && rank == 0)
        perf_explain(stdout);
    else if (!options.usage && !options.explain)
        rc = run(&options, rank);
    ranks_finish();
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_perf_measure.c - the loop. Every iteration runs each side once, one after the other, each
 * after a barrier, so that what disturbs the machine disturbs all of them. The time of an
 * iteration is that of the slowest rank; median, minimum and maximum are over iterations.
 */
#include <stdlib.h>
#include <string.h>

#include "epx_perf.h"

enum { COMPUTE_ELEMENTS = 512, COPY_PIECE = 32768 };

/*
 * Copies between the tokens at home and the rows received. Each piece of the shorter side is
 * used for as many pieces of the longer one as there are, one after the other, so that like a
 * token it crosses the memory bus once.
 */
static void copy_pieces(char *home, int64_t home_bytes, char *rows, int64_t rows_bytes,
                        int gathers)
{
    int64_t times = home_bytes ? (rows_bytes + home_bytes - 1) / home_bytes : 0, done = 0;

    for (int64_t at = 0; at < home_bytes; at += COPY_PIECE)
        for (int64_t i = 0; i < times && done < rows_bytes; i++) {
            int64_t n = home_bytes - at < COPY_PIECE ? home_bytes - at : COPY_PIECE;

            n = n < rows_bytes - done ? n : rows_bytes - done;
            memcpy(gathers ? home + at : rows + done, gathers ? rows + done : home + at,
                   (size_t)n);
            done += n;
        }
}

static int64_t received_bytes(const struct perf_load *load)
{
    int64_t rows = 0;

    for (int s = 0; s < load->size; s++)
        rows += load->rows_from[s];
    return rows * load->row_bytes;
}

/* The ceiling: as many bytes as this rank receives, between the buffers that the verb uses. */
static void copy(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    const struct perf_verb *verb = bench->options->verb;
    int64_t total = received_bytes(load);
    int64_t home = (verb->by_pairs ? load->pairs : load->tokens) * load->row_bytes;

    if (verb->spreads)
        copy_pieces(bench->tokens, home, bench->rows, total, 0);
    if (verb->gathers)
        copy_pieces(bench->sums, home, bench->rows, total, 1);
}

static void run(struct perf_bench *bench, enum perf_side side)
{
    switch (side) {
    case PERF_EPX:
        bench->options->verb->start(bench);
        EPX_Wait(&bench->request, MPI_STATUS_IGNORE);
        break;
    case PERF_PEER: bench->options->verb->peer(bench->peer); break;
    case PERF_COPY: copy(bench); break;
    default: MPI_Barrier(bench->load.comm);
    }
}

static int runs(const struct perf_bench *bench, enum perf_side side)
{
    const struct perf_verb *verb = bench->options->verb;

    return side == PERF_PEER ? bench->peer != NULL
                             : side != PERF_COPY || verb->spreads || verb->gathers;
}

/* What an operation fails to write must not pass for its result. */
static void poison(struct perf_bench *bench, enum perf_side side)
{
    const struct perf_verb *verb = bench->options->verb;
    const struct perf_load *load = &bench->load;

    if (side == PERF_PEER)
        perf_peer_poison(bench->peer, verb->spreads, verb->gathers);
    if (side != PERF_EPX)
        return;
    if (verb->spreads)
        memset(bench->rows, 0xa5, (size_t)(load->capacity * load->row_bytes));
    if (verb->spreads)
        memset(bench->row_weights, 0xa5, (size_t)(load->capacity * bench->weights) * sizeof(float));
    if (verb->gathers)
        memset(bench->sums, 0xa5, (size_t)(load->tokens * load->row_bytes));
    memset(bench->recv_counts, 0xa5, (size_t)load->size * sizeof(int64_t));
}

/* Seconds on this rank; adds wrong rows. */
static double run_once(struct perf_bench *bench, enum perf_side side, int64_t *wrong)
{
    int checks = bench->options->check && side <= PERF_PEER;
    double start, time;

    if (checks)
        poison(bench, side);
    MPI_Barrier(bench->load.comm);
    start = MPI_Wtime();
    run(bench, side);
    time = MPI_Wtime() - start;
    if (checks)
        *wrong += bench->options->verb->check(bench, side);
    return time;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Over iterations, of the slowest rank in each; the same on all ranks. */
static struct perf_time summarize(const struct perf_bench *bench, double *times)
{
    int num = (int)bench->options->iterations;
    struct perf_time time;

    MPI_Allreduce(MPI_IN_PLACE, times, num, MPI_DOUBLE, MPI_MAX, bench->load.comm);
    qsort(times, (size_t)num, sizeof(*times), compare);
    time.min = times[0];
    time.max = times[num - 1];
    time.median = (times[(num - 1) / 2] + times[num / 2]) / 2;
    return time;
}

static void alternate(struct perf_bench *bench, struct perf_result *result)
{
    int64_t num = bench->options->iterations, warmup = bench->options->warmup, wrong = 0;
    double *times = perf_alloc(num * PERF_SIDES, sizeof(*times));

    for (int64_t i = -warmup; i < num; i++)
        for (int side = 0; side < PERF_SIDES; side++)
            if (runs(bench, (enum perf_side)side)) {
                double time = run_once(bench, (enum perf_side)side, &wrong);

                if (i >= 0)
                    times[side * num + i] = time;
            }
    for (int side = 0; side < PERF_SIDES; side++)
        result->time[side] = summarize(bench, times + side * num);
    MPI_Allreduce(&wrong, &result->wrong_rows, 1, MPI_INT64_T, MPI_SUM, bench->load.comm);
    free(times);
}

/* Work in the first cache that no compiler can leave out. */
static void compute(int64_t units)
{
    static double x[COMPUTE_ELEMENTS];
    static volatile double sink;

    for (int64_t unit = 0; unit < units; unit++) {
        for (int i = 0; i < COMPUTE_ELEMENTS; i++)
            x[i] = x[i] * 0.5 + 1;
        sink = x[unit % COMPUTE_ELEMENTS];
    }
    (void)sink;
}

/* Units of computation that take this rank about as long. */
static int64_t calibrate(double seconds)
{
    int64_t units = 1;
    double time = 0;

    while (time < 1e-3) {
        double start = MPI_Wtime();

        units *= 2;
        compute(units);
        time = MPI_Wtime() - start;
    }
    return 1 + (int64_t)((double)units * seconds / time);
}

/* Start, compute with an EPX_Test now and then, wait. */
static void overlap_once(struct perf_bench *bench, int64_t units)
{
    int64_t tests = bench->options->tests;
    int done;

    bench->options->verb->start(bench);
    for (int64_t i = 0; i <= tests; i++) {
        compute(units / (tests + 1));
        if (i < tests)
            EPX_Test(&bench->request, &done, MPI_STATUS_IGNORE);
    }
    EPX_Wait(&bench->request, MPI_STATUS_IGNORE);
}

static double time_overlap(struct perf_bench *bench, int part, int64_t units)
{
    double start;

    MPI_Barrier(bench->load.comm);
    start = MPI_Wtime();
    if (part == 0)
        run(bench, PERF_EPX);
    else if (part == 1)
        compute(units);
    else
        overlap_once(bench, units);
    return MPI_Wtime() - start;
}

/*
 * Communication alone, computation alone, both: overlap is the part of the shorter one that was
 * hidden, as the Intel MPI Benchmarks define it.
 */
static void measure_overlap(struct perf_bench *bench, struct perf_result *result)
{
    int64_t num = bench->options->iterations;
    int64_t units = calibrate(result->time[PERF_EPX].median);
    double *times = perf_alloc(num * 3, sizeof(*times)), pure, shorter;

    for (int64_t i = 0; i < num; i++)
        for (int part = 0; part < 3; part++)
            times[part * num + i] = time_overlap(bench, part, units);
    pure = summarize(bench, times).median;
    result->compute = summarize(bench, times + num).median;
    result->both = summarize(bench, times + 2 * num).median;
    shorter = pure < result->compute ? pure : result->compute;
    result->overlap = (pure + result->compute - result->both) / shorter;
    result->overlap = result->overlap < 0 ? 0 : result->overlap > 1 ? 1 : result->overlap;
    free(times);
}

void perf_measure(struct perf_bench *bench, struct perf_result *result)
{
    const struct perf_load *load = &bench->load;
    const struct perf_verb *verb = bench->options->verb;
    int directions = verb->spreads + verb->gathers;

    memset(result, 0, sizeof(*result));
    result->tokens = load->tokens;
    result->row_bytes = load->row_bytes;
    result->wire_bytes = directions * load->wire_rows * load->row_bytes;
    result->logical_bytes = directions * load->logical_rows * load->row_bytes;
    result->overlap = -1;
    alternate(bench, result);
    if (bench->options->full && !verb->waits)
        measure_overlap(bench, result);
}

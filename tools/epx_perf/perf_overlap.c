/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_overlap.c - how much of an operation a computation beside it hides: a loop of the benchmark
 * itself, in any memory, or products of matrices as a model has them, on a GPU.
 */
#include "epx_perf/perf_overlap.h"

#include <stdlib.h>

#include "epx_perf/bench/perf_comm.h"
#include "epx_perf/perf_progress.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

/* Multiprocessors that a computation leaves to the kernels that wait for other ranks; where the
 * hint says as many as pay, as many as kernels hold that only wait. */
static int spare_sms(const struct perf_bench *bench)
{
    enum { AS_MANY_AS_PAY = 32 };
    char text[EPX_MAX_HINT_STRING];
    int sms;

    perf_read_hint(bench->comm, "epx_max_sms", text);
    sms = atoi(text);
    return sms ? sms : AS_MANY_AS_PAY;
}

/* One of the three timings from which overlap is worked out. */
struct overlap_part {
    int operates, computes;
    int64_t units;
    int spare_sms;
};

/* Starts the operation, computes with an EPX_Test now and then, and waits. */
static void overlap_once(struct perf_bench *bench, const struct overlap_part *part)
{
    const struct perf_space *space = bench->options->space;
    int64_t tests = part->operates ? bench->options->tests : 0;
    int done;

    if (part->operates)
        bench->options->verb->start(bench);
    for (int64_t i = 0; i <= tests && part->computes; i++) {
        space->compute(part->units / (tests + 1), part->spare_sms);
        if (i < tests)
            ranks_must(EPX_Test(&bench->request, &done, MPI_STATUS_IGNORE));
    }
    ranks_must(EPX_Wait_enqueue(&bench->request, bench->stream));
}

static double time_overlap(struct perf_bench *bench, const struct overlap_part *part)
{
    const struct perf_space *space = bench->options->space;

    ranks_barrier();
    space->start_clock();
    overlap_once(bench, part);
    return space->stop_clock();
}

/* Returns the units of computation that take this rank about that many seconds. */
static int64_t calibrate(const struct perf_space *space, double seconds, int spare_sms)
{
    int64_t units = 1;
    double time = 0;

    while (time < 1e-3) {
        units *= 2;
        space->start_clock();
        space->compute(units, spare_sms);
        time = space->stop_clock();
    }
    return 1 + (int64_t)((double)units * seconds / time);
}

/* Overlap is the part of the shorter of operation and computation that was hidden, as the Intel MPI
 * Benchmarks define it; `median` is of each alone, then of both. */
static void note_overlap(const double median[3], struct perf_result *result)
{
    double shorter = median[0] < median[1] ? median[0] : median[1];

    result->compute = median[1];
    result->both = median[2];
    result->overlap = (median[0] + median[1] - median[2]) / shorter;
    result->overlap = result->overlap < 0 ? 0 : result->overlap > 1 ? 1 : result->overlap;
}

static void measure_loop(struct perf_bench *bench, struct perf_result *result)
{
    int num = (int)bench->options->iterations, spare = spare_sms(bench);
    int64_t units = calibrate(bench->options->space, result->time[PERF_EPX].median, spare);
    const struct overlap_part parts[] = {{1, 0, 0, 0}, {0, 1, units, spare}, {1, 1, units, spare}};
    double *times = perf_alloc((int64_t)num * 3, sizeof(*times)), median[3];

    for (int i = 0; i < num; i++) {
        perf_progress_show("overlap", i + 1, num);
        for (int part = 0; part < 3; part++)
            times[part * num + i] = time_overlap(bench, &parts[part]);
    }
    for (int part = 0; part < 3; part++)
        median[part] = perf_summarize(times + part * num, num).median;
    note_overlap(median, result);
    free(times);
}

/* The products behind the call of an operation, and before its wait. */
static void multiply(struct perf_bench *bench)
{
    bench->options->space->gemm(bench->products, spare_sms(bench));
}

/* The times of one run: of the clock, and of the products in it. */
struct gemm_times {
    double clock, gemm;
};

static struct gemm_times time_gemm(struct perf_bench *bench, int operates, int multiplies)
{
    const struct perf_space *space = bench->options->space;
    const struct perf_verb *verb = bench->options->verb;
    struct gemm_times times = {0, 0};

    bench->between = multiplies ? multiply : NULL;
    ranks_barrier();
    space->start_clock();
    if (operates)
        verb->start(bench);
    if (multiplies && operates)
        multiply(bench);
    else if (multiplies)
        space->gemm(bench->products * (verb->waits ? 2 : 1), 0);
    ranks_must(EPX_Wait_enqueue(&bench->request, bench->stream));
    times.clock = space->stop_clock();
    if (multiplies)
        times.gemm = space->gemm_time();
    bench->between = NULL;
    return times;
}

/* As many products as take half as long again as an operation. */
static int64_t count_products(struct perf_bench *bench)
{
    enum { TRIES = 10 };
    double operation = 0, product = 0, both[2];

    bench->products = 1;
    for (int i = 0; i < TRIES; i++) {
        operation = time_gemm(bench, 1, 0).clock;
        product = time_gemm(bench, 0, 1).gemm;
    }
    both[0] = operation;
    both[1] = product;
    ranks_max(both, 2);
    return 1 + (int64_t)(1.5 * both[0] / both[1]);
}

static void measure_gemm(struct perf_bench *bench, struct perf_result *result)
{
    int num = (int)bench->options->iterations;
    double *times = perf_alloc((int64_t)num * 5, sizeof(*times)), median[5];

    bench->products = count_products(bench);
    for (int i = -1; i < num; i++) {
        perf_progress_show("overlap", i + 1, num);
        for (int part = 0; part < 3; part++) {
            struct gemm_times taken = time_gemm(bench, part != 1, part != 0);

            if (i < 0)
                continue;
            times[part * num + i] = taken.clock;
            if (part)
                times[(part + 2) * num + i] = taken.gemm;
        }
    }
    for (int part = 0; part < 5; part++)
        median[part] = perf_summarize(times + part * num, num).median;
    note_overlap(median, result);
    result->gemm = median[3];
    result->gemm_beside = median[4];
    free(times);
}

void perf_overlap(struct perf_bench *bench, struct perf_result *result)
{
    const struct perf_options *options = bench->options;

    perf_bench_take(bench, 0);
    if (options->full && (options->space->stream || !options->verb->waits))
        measure_loop(bench, result);
    if (options->overlap)
        measure_gemm(bench, result);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_measure.c - the loop that takes the times. Every iteration runs each side once, one after
 * the other, each after a barrier, so that what disturbs the machine disturbs all sides. The time
 * of an iteration is the time of the slowest rank; median, minimum and maximum are over iterations.
 */
#include "epx_perf/perf_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/peer/perf_peer.h"
#include "epx_perf/perf_progress.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

static int64_t received_bytes(const struct perf_load *load)
{
    int64_t rows = 0;

    for (int s = 0; s < load->size; s++)
        rows += load->rows_from[s];
    return rows * load->row_bytes;
}

/* Copies as many bytes as this rank receives between the buffers that the verb uses. */
static void copy(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    const struct perf_verb *verb = bench->options->verb;
    struct perf_copy copy = {.rows = bench->rows.address, .rows_bytes = received_bytes(load)};

    copy.home_bytes = (verb->by_pairs ? load->pairs : load->tokens) * load->row_bytes;
    if (verb->spreads) {
        copy.home = bench->tokens.address;
        bench->options->space->copy(&copy);
    }
    if (verb->gathers) {
        copy.home = bench->sums.address;
        copy.gathers = 1;
        bench->options->space->copy(&copy);
    }
}

static void operate(struct perf_bench *bench, enum perf_side side)
{
    switch (side) {
    case PERF_EPX: perf_bench_operate(bench); break;
    case PERF_PEER: bench->options->verb->peer(bench->peer); break;
    case PERF_COPY: copy(bench); break;
    default: ranks_barrier();
    }
}

/* Runs a batch of one side; a batch of EPX may be a graph, whose operations have their ids. */
static void run(struct perf_bench *bench, enum perf_side side, int64_t first)
{
    if (side == PERF_EPX && bench->graph) {
        bench->options->space->replay(bench->graph);
        return;
    }
    for (int64_t i = 0; i < bench->options->batch; i++) {
        perf_bench_take(bench, first + i);
        operate(bench, side);
    }
}

static int runs(const struct perf_bench *bench, enum perf_side side)
{
    const struct perf_verb *verb = bench->options->verb;

    return side == PERF_PEER ? bench->peer != NULL
                             : side != PERF_COPY || verb->spreads || verb->gathers;
}

/* Overwrites outputs: what an operation fails to write must not pass for its result. */
static void poison(struct perf_bench *bench, enum perf_side side)
{
    const struct perf_verb *verb = bench->options->verb;

    if (side == PERF_PEER)
        perf_peer_poison(bench->peer, verb->spreads, verb->gathers);
    else
        perf_bench_poison(bench);
}

static int64_t check(struct perf_bench *bench, enum perf_side side)
{
    const struct perf_verb *verb = bench->options->verb;

    if (side == PERF_PEER)
        perf_peer_fetch(bench->peer, verb->spreads, verb->gathers);
    else
        perf_bench_fetch(bench);
    return verb->check(bench, side);
}

/*
 * Returns seconds for one operation on this rank, and adds the wrong rows of the batch's last one
 * to *wrong. first is the number of the batch's first one: ids follow from the number.
 */
static double run_once(struct perf_bench *bench, enum perf_side side, int64_t first, int64_t *wrong)
{
    const struct perf_space *space = bench->options->space;
    int checks = bench->options->check && side <= PERF_PEER;
    double time;

    if (checks)
        poison(bench, side);
    ranks_barrier();
    space->start_clock();
    run(bench, side, first);
    time = space->stop_clock();
    perf_bench_take(bench, first + bench->options->batch - 1);
    if (checks)
        *wrong += check(bench, side);
    return time / (double)bench->options->batch;
}

static void alternate(struct perf_bench *bench, struct perf_result *result)
{
    int64_t num = bench->options->iterations, warmup = bench->options->warmup, wrong = 0;
    double *times = perf_alloc(num * PERF_SIDES, sizeof(*times));

    for (int64_t i = -warmup; i < num; i++) {
        /* A graph has the same ids in every replay, so the other sides have, too. */
        int64_t first = bench->graph ? 0 : (i + warmup) * bench->options->batch;

        perf_progress_show("iteration", i + warmup + 1, num + warmup);
        for (int side = 0; side < PERF_SIDES; side++)
            if (runs(bench, (enum perf_side)side)) {
                double time = run_once(bench, (enum perf_side)side, first, &wrong);

                if (i >= 0)
                    times[side * num + i] = time;
            }
    }
    for (int side = 0; side < PERF_SIDES; side++)
        result->time[side] = perf_summarize(times + side * num, (int)num);
    ranks_sum(&wrong, 1);
    result->wrong_rows = wrong;
    free(times);
}

/* Captures a batch of EPX's operations as a graph, once. */
static void capture(struct perf_bench *bench, struct perf_result *result)
{
    const struct perf_space *space = bench->options->space;
    int kernels;

    space->start_capture();
    for (int64_t i = 0; i < bench->options->batch; i++) {
        perf_bench_take(bench, i);
        perf_bench_operate(bench);
    }
    bench->graph = space->end_capture(&kernels);
    result->kernels = (double)kernels / (double)bench->options->batch;
}

void perf_measure(struct perf_bench *bench, struct perf_result *result)
{
    const struct perf_options *options = bench->options;
    const struct perf_load *load = &bench->load;
    int directions = options->verb->spreads + options->verb->gathers;

    memset(result, 0, sizeof(*result));
    result->tokens = load->tokens;
    result->row_bytes = load->row_bytes;
    result->wire_bytes = directions * load->wire_rows * load->row_bytes / load->num_sets;
    result->logical_bytes = directions * load->logical_rows * load->row_bytes / load->num_sets;
    result->overlap = -1;
    if (options->graph)
        capture(bench, result);
    alternate(bench, result);
    if (bench->graph)
        options->space->free_graph(bench->graph);
    bench->graph = NULL;
}

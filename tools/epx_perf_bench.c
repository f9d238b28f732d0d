/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_perf_bench.c - route and buffers of one point of the sweep, and where the buffers lie. */
#include <stdlib.h>
#include <string.h>

#include "epx_perf.h"

static void *place_alloc(const struct perf_bench *bench, int64_t bytes)
{
    void *memory;

    if (bench->options->place == PERF_PLACE_HEAP)
        return perf_alloc(bytes, 1);
    EPX_Alloc_mem((MPI_Aint)bytes, bench->comm, &memory);
    return bytes ? memset(memory, 0, (size_t)bytes) : memory;
}

static void place_free(const struct perf_bench *bench, void *memory)
{
    if (bench->options->place == PERF_PLACE_HEAP)
        free(memory);
    else
        EPX_Free_mem(memory, bench->comm);
}

static int has_rows(const struct perf_bench *bench)
{
    return bench->options->verb->spreads || bench->options->verb->gathers;
}

static void create_route(struct perf_bench *bench)
{
    static const EPX_Route_view empty = EPX_ROUTE_VIEW_INIT;
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = bench->load.experts;
    attr.top_k = bench->load.top_k;
    attr.max_tokens = bench->load.tokens;
    attr.alignment = bench->load.alignment;
    attr.recv_capacity = bench->load.capacity;
    attr.max_row_bytes = bench->load.row_bytes;
    attr.layout = bench->options->layout;
    bench->view = empty;
    EPX_Route_create(&attr, bench->comm, &bench->route);
    EPX_Route_get_view(bench->route, &bench->view);
}

static void create_rows(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    int by_pairs = bench->options->verb->by_pairs;
    int64_t num = by_pairs ? load->pairs : load->tokens;

    bench->weights = bench->options->layout == EPX_RANK_MAJOR ? load->top_k : 1;
    bench->tokens = perf_alloc(num, load->row_bytes);
    for (int64_t i = 0; i < num; i++)
        perf_fill_row(load, load->rank, i, 1, bench->tokens + i * load->row_bytes);
    bench->sums = perf_alloc(load->tokens, load->row_bytes);
    bench->rows = place_alloc(bench, load->capacity * load->row_bytes);
    bench->row_weights =
        place_alloc(bench, load->capacity * bench->weights * (int64_t)sizeof(float));
}

/* Rows for rank r stand after those for the ranks before it. */
static void create_counts(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;

    bench->counts = perf_alloc(load->size, sizeof(int64_t));
    bench->displs = perf_alloc(load->size, sizeof(int64_t));
    bench->recv_counts = perf_alloc(load->size, sizeof(int64_t));
    bench->recv_displs = perf_alloc(load->size, sizeof(int64_t));
    bench->peer_displs = perf_alloc(load->size, sizeof(int64_t));
    for (int r = 0; r < load->size; r++) {
        bench->counts[r] = load->rows_to[r];
        bench->displs[r] = r ? bench->displs[r - 1] + bench->counts[r - 1] : 0;
    }
    MPI_Alltoall(bench->displs, 1, MPI_INT64_T, bench->peer_displs, 1, MPI_INT64_T, load->comm);
}

int perf_bench_create(const struct perf_options *options, int tokens, int64_t row_bytes,
                      EPX_Comm comm, struct perf_bench *bench)
{
    memset(bench, 0, sizeof(*bench));
    bench->options = options;
    bench->comm = comm;
    if (perf_load_create(options, tokens, row_bytes, MPI_COMM_WORLD, &bench->load)) {
        perf_load_free(&bench->load);
        return -1;
    }
    if (!options->verb->by_pairs)
        create_route(bench);
    if (has_rows(bench))
        create_rows(bench);
    create_counts(bench);
    if (options->peer)
        bench->peer = perf_peer_create(bench);
    if (options->check)
        perf_expect_create(bench);
    if (options->verb->prepare)
        options->verb->prepare(bench);
    return 0;
}

void perf_bench_free(struct perf_bench *bench)
{
    perf_expect_free(bench);
    perf_peer_free(bench->peer);
    free(bench->counts);
    free(bench->displs);
    free(bench->recv_counts);
    free(bench->recv_displs);
    free(bench->peer_displs);
    if (has_rows(bench)) {
        place_free(bench, bench->row_weights);
        place_free(bench, bench->rows);
    }
    free(bench->sums);
    free(bench->tokens);
    if (bench->route)
        EPX_Route_free(&bench->route);
    perf_load_free(&bench->load);
}

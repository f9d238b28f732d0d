/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_verbs.c - the sub-commands: what is timed, and what must have been done before. */
#include "epx_perf/perf_verbs.h"

#include <string.h>

#include "epx_perf/bench/perf_bench.h"
#include "epx_perf/bench/perf_number.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/peer/perf_peer.h"
#include "epx_perf/perf_check.h"
#include "ranks/ranks.h"

static void start_route(struct perf_bench *bench)
{
    ranks_must(EPX_Route_tokens(perf_bench_ids(bench), bench->load.tokens, bench->route,
                                bench->stream, &bench->request));
}

/* The arguments of a dispatch of fields. */
struct fields {
    const void *from[EPX_MAX_FIELDS];
    void *to[EPX_MAX_FIELDS];
    int counts[EPX_MAX_FIELDS];
    EPX_Datatype types[EPX_MAX_FIELDS];
};

static struct fields fields_of(const struct perf_bench *bench)
{
    struct fields fields;

    for (int f = 0; f < bench->options->num_fields; f++) {
        fields.from[f] = bench->field_tokens[f].address;
        fields.to[f] = bench->field_rows[f].address;
        fields.counts[f] = bench->options->fields[f].count;
        fields.types[f] = bench->options->fields[f].datatype;
    }
    return fields;
}

static void start_dispatch_fields(struct perf_bench *bench)
{
    struct fields fields = fields_of(bench);

    ranks_must(EPX_Dispatch_fields(bench->options->num_fields, fields.from, fields.to,
                                   fields.counts, fields.types, bench->token_weights.address,
                                   bench->row_weights.address, bench->route, bench->stream,
                                   &bench->request));
}

static void start_route_dispatch_fields(struct perf_bench *bench)
{
    struct fields fields = fields_of(bench);

    ranks_must(EPX_Route_dispatch_fields(
        perf_bench_ids(bench), bench->load.tokens, bench->options->num_fields, fields.from,
        fields.to, fields.counts, fields.types, bench->token_weights.address,
        bench->row_weights.address, bench->route, bench->stream, &bench->request));
}

static void start_dispatch(struct perf_bench *bench)
{
    if (bench->options->num_fields) {
        start_dispatch_fields(bench);
        return;
    }
    ranks_must(EPX_Dispatch(bench->tokens.address, bench->token_weights.address,
                            bench->rows.address, bench->row_weights.address, bench->load.count,
                            bench->load.datatype, bench->route, bench->stream, &bench->request));
}

static void start_route_dispatch(struct perf_bench *bench)
{
    if (bench->options->num_fields) {
        start_route_dispatch_fields(bench);
        return;
    }
    ranks_must(EPX_Route_dispatch(
        perf_bench_ids(bench), bench->load.tokens, bench->tokens.address,
        bench->token_weights.address, bench->rows.address, bench->row_weights.address,
        bench->load.count, bench->load.datatype, bench->route, bench->stream, &bench->request));
}

/* NULL for rank-major rows: the weights are in the rows already. */
static const float *combine_weights(const struct perf_bench *bench)
{
    return bench->options->layout == EPX_RANK_MAJOR ? NULL : bench->row_weights.address;
}

static void start_combine(struct perf_bench *bench)
{
    ranks_must(EPX_Combine(bench->rows.address, combine_weights(bench), bench->sums.address,
                           bench->load.count, bench->load.datatype, bench->route, bench->stream,
                           &bench->request));
}

static void start_dispatch_backward(struct perf_bench *bench)
{
    ranks_must(EPX_Dispatch_backward(bench->rows.address, bench->row_weights.address,
                                     bench->sums.address, bench->weight_grads.address,
                                     bench->load.count, bench->load.datatype, bench->route,
                                     bench->stream, &bench->request));
}

static void start_combine_backward(struct perf_bench *bench)
{
    ranks_must(
        EPX_Combine_backward(bench->tokens.address, bench->forward.address, combine_weights(bench),
                             bench->rows.address, bench->weight_grads.address, bench->load.count,
                             bench->load.datatype, bench->route, bench->stream, &bench->request));
}

static void start_alltoallv(struct perf_bench *bench)
{
    ranks_must(EPX_Alltoallv(bench->tokens.address, bench->counts.address, bench->displs.address,
                             bench->rows.address, bench->recv_counts.address,
                             bench->recv_displs.address, bench->load.capacity, bench->load.count,
                             bench->load.datatype, bench->comm, bench->stream, &bench->request));
}

/*
 * Combine reads what dispatch wrote. The experts would work between the two, where the stream or
 * the host waits for dispatch.
 */
static void start_layer(struct perf_bench *bench)
{
    start_route_dispatch(bench);
    if (bench->between)
        bench->between(bench);
    ranks_must(EPX_Wait_enqueue(&bench->request, bench->stream));
    start_combine(bench);
}

static void learn_peer(struct perf_bench *bench)
{
    if (bench->peer)
        perf_peer_learn(bench->peer);
}

static void prepare_dispatch(struct perf_bench *bench)
{
    start_route(bench);
    ranks_must(EPX_Wait(&bench->request, MPI_STATUS_IGNORE));
    learn_peer(bench);
}

/* Stands for the experts: multiplies every slab, or all rows of a rank, by a factor. */
static void scale_slabs(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    const EPX_Route_view *view = &bench->seen;
    char *rows = perf_buffer_fetch(&bench->rows);

    if (bench->options->layout == EPX_RANK_MAJOR)
        perf_scale_rows(load, perf_factor(load->rank), *view->num_rows, rows);
    else
        for (int e = 0; e < view->num_local_experts; e++)
            perf_scale_rows(load, perf_factor(view->first_local_expert + e), view->expert_counts[e],
                            rows + view->expert_offsets[e] * load->row_bytes);
    perf_buffer_send(&bench->rows);
}

/* Dispatches once, so that there are rows to combine; only checks need the work of experts. */
static void prepare_combine(struct perf_bench *bench)
{
    prepare_dispatch(bench);
    start_dispatch(bench);
    ranks_must(EPX_Wait(&bench->request, MPI_STATUS_IGNORE));
    if (bench->peer)
        perf_peer_dispatch(bench->peer);
    if (!bench->options->check)
        return;
    perf_bench_fetch(bench);
    scale_slabs(bench);
    if (bench->peer)
        perf_peer_scale(bench->peer);
}

/* Keeps a copy of the rows that combine was given: their gradients overwrite them. */
static void prepare_combine_backward(struct perf_bench *bench)
{
    prepare_combine(bench);
    if (!bench->options->check)
        return;
    memcpy(perf_buffer_image(&bench->forward), perf_buffer_fetch(&bench->rows),
           (size_t)bench->rows.bytes);
    perf_buffer_send(&bench->forward);
}

static const struct perf_verb verbs[] = {
    {.name = "route",
     .routes = 1,
     .start = start_route,
     .peer = perf_peer_route,
     .check = perf_check_route},
    {.name = "dispatch",
     .spreads = 1,
     .takes_fields = 1,
     .prepare = prepare_dispatch,
     .start = start_dispatch,
     .peer = perf_peer_dispatch,
     .check = perf_check_dispatch},
    {.name = "route-dispatch",
     .routes = 1,
     .spreads = 1,
     .takes_fields = 1,
     .prepare = learn_peer,
     .start = start_route_dispatch,
     .peer = perf_peer_route_dispatch,
     .check = perf_check_route_dispatch},
    {.name = "combine",
     .sums = 1,
     .gathers = 1,
     .prepare = prepare_combine,
     .start = start_combine,
     .peer = perf_peer_combine,
     .check = perf_check_sums},
    {.name = "dispatch-backward",
     .sums = 1,
     .gathers = 1,
     .backward = 1,
     .prepare = prepare_combine,
     .start = start_dispatch_backward,
     .check = perf_check_dispatch_backward},
    {.name = "combine-backward",
     .sums = 1,
     .spreads = 1,
     .backward = 1,
     .prepare = prepare_combine_backward,
     .start = start_combine_backward,
     .check = perf_check_combine_backward},
    {.name = "alltoallv",
     .spreads = 1,
     .by_pairs = 1,
     .prepare = learn_peer,
     .start = start_alltoallv,
     .peer = perf_peer_alltoallv,
     .check = perf_check_alltoallv},
    {.name = "layer",
     .routes = 1,
     .sums = 1,
     .spreads = 1,
     .gathers = 1,
     .waits = 1,
     .prepare = learn_peer,
     .start = start_layer,
     .peer = perf_peer_layer,
     .check = perf_check_layer},
    {.name = NULL},
};
_Static_assert(sizeof(verbs) / sizeof(*verbs) <= PERF_MOST_VERBS, "names of all sub-commands");

const struct perf_verb *perf_verb_find(const char *name)
{
    for (const struct perf_verb *verb = verbs; verb->name; verb++)
        if (strcmp(verb->name, name) == 0)
            return verb;
    return NULL;
}

void perf_verb_names(const char *names[PERF_MOST_VERBS + 1])
{
    const struct perf_verb *verb = verbs;

    for (; verb->name; verb++)
        *names++ = verb->name;
    *names++ = "neighbor"; /* has a command line of its own: perf_neighbor.h */
    *names = NULL;
}

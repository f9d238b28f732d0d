/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_bench.c - route and buffers of one point of the sweep, and where the buffers lie. */
#include "epx_perf/bench/perf_bench.h"

#include <stdlib.h>
#include <string.h>

#include "epx_perf/bench/perf_ids.h"
#include "epx_perf/bench/perf_number.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

/* Makes a buffer that the host fills: perf_buffer_send() brings its image to the memory. */
static void *create_input(struct perf_bench *bench, struct perf_buffer *buffer, int64_t bytes)
{
    perf_buffer_create(buffer, bench->options->space, bytes, EPX_COMM_NULL);
    return perf_buffer_image(buffer);
}

static void create_output(struct perf_bench *bench, struct perf_buffer *buffer, int64_t bytes)
{
    perf_buffer_create(buffer, bench->options->space, bytes, EPX_COMM_NULL);
}

/* Makes a receive buffer, where the option --receive-buffer wants it. */
static void create_receive_buffer(struct perf_bench *bench, struct perf_buffer *buffer,
                                  int64_t bytes)
{
    int window = bench->options->place == PERF_PLACE_WINDOW;

    perf_buffer_create(buffer, bench->options->space, bytes, window ? bench->comm : EPX_COMM_NULL);
}

static void create_copy(struct perf_bench *bench, struct perf_buffer *buffer, const void *from,
                        int64_t bytes)
{
    memcpy(create_input(bench, buffer, bytes), from, (size_t)bytes);
    perf_buffer_send(buffer);
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
    attr.max_tokens = bench->load.tokens ? bench->load.tokens : 1; /* no route has 0 */
    attr.alignment = bench->load.alignment;
    attr.rows_per_expert = bench->load.rows_per_expert;
    attr.recv_capacity = bench->load.rows_per_expert ? 0 : bench->load.capacity;
    attr.max_row_bytes = bench->load.row_bytes;
    attr.layout = bench->options->layout;
    bench->view = empty;
    ranks_must(EPX_Route_create(&attr, bench->comm, &bench->route));
    ranks_must(EPX_Route_get_view(bench->route, &bench->view));
    bench->seen = bench->view;
}

static void create_tokens(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    int64_t num = bench->options->verb->by_pairs ? load->pairs : load->tokens;
    char *tokens = create_input(bench, &bench->tokens, num * load->row_bytes);

    for (int64_t i = 0; i < num; i++)
        perf_fill_row(load, load->rank, i, 1, tokens + i * load->row_bytes);
    perf_buffer_send(&bench->tokens);
}

int64_t perf_field_bytes(const struct perf_bench *bench, int f)
{
    const struct perf_field *field = &bench->options->fields[f];

    return (int64_t)field->count * perf_datatype_bytes(field->datatype);
}

static void create_fields(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    char *row = perf_alloc(1, load->row_bytes);
    int64_t at = 0;

    for (int f = 0; f < bench->options->num_fields; f++) {
        int64_t bytes = perf_field_bytes(bench, f);
        char *tokens = create_input(bench, &bench->field_tokens[f], load->tokens * bytes);

        for (int64_t i = 0; i < load->tokens; i++) {
            perf_fill_row(load, load->rank, i, 1, row);
            memcpy(tokens + i * bytes, row + at, (size_t)bytes);
        }
        perf_buffer_send(&bench->field_tokens[f]);
        create_receive_buffer(bench, &bench->field_rows[f], load->capacity * bytes);
        at += bytes;
    }
    free(row);
}

/* There is a gradient of a weight for each pair, or for each row. */
static void create_backward(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    int by_rows = bench->options->verb->spreads;

    create_output(bench, &bench->weight_grads,
                  (by_rows ? load->capacity : load->pairs) * (int64_t)sizeof(float));
    if (by_rows)
        create_receive_buffer(bench, &bench->forward, load->capacity * load->row_bytes);
}

static void create_rows(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;

    bench->weights = bench->options->layout == EPX_RANK_MAJOR ? load->top_k : 1;
    create_tokens(bench);
    create_output(bench, &bench->sums, load->tokens * load->row_bytes);
    create_receive_buffer(bench, &bench->rows, load->capacity * load->row_bytes);
    create_receive_buffer(bench, &bench->row_weights,
                          load->capacity * bench->weights * (int64_t)sizeof(float));
    if (bench->options->verb->backward)
        create_backward(bench);
    create_fields(bench);
}

/* Fills in counts and displacements: rows for rank r stand after those for the ranks before it. */
static void create_counts(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    int64_t bytes = load->size * (int64_t)sizeof(int64_t);
    int64_t *counts = create_input(bench, &bench->counts, bytes);
    int64_t *displs = create_input(bench, &bench->displs, bytes);

    create_output(bench, &bench->recv_counts, bytes);
    create_output(bench, &bench->recv_displs, bytes);
    bench->peer_displs = perf_alloc(load->size, sizeof(int64_t));
    for (int r = 0; r < load->size; r++) {
        counts[r] = load->rows_to[r];
        displs[r] = r ? displs[r - 1] + counts[r - 1] : 0;
    }
    perf_buffer_send(&bench->counts);
    perf_buffer_send(&bench->displs);
    ranks_alltoall(displs, bench->peer_displs, sizeof(*displs));
}

static void create_choices(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;

    for (int set = 0; set < load->num_sets; set++)
        create_copy(bench, &bench->ids[set], load->all_ids + set * load->pairs,
                    load->pairs * (int64_t)sizeof(*load->ids));
    create_copy(bench, &bench->token_weights, load->weights,
                load->pairs * (int64_t)sizeof(*load->weights));
}

int perf_bench_create(const struct perf_options *options, int tokens, int64_t row_bytes,
                      EPX_Comm comm, struct perf_bench *bench)
{
    memset(bench, 0, sizeof(*bench));
    bench->options = options;
    bench->comm = comm;
    bench->stream = options->space->stream ? options->space->stream() : EPX_STREAM_NULL;
    perf_load_create(options, tokens, row_bytes, &bench->load);
    if (perf_ids_make(options, &bench->load) || perf_load_count(options, &bench->load)) {
        perf_load_free(&bench->load);
        return -1;
    }
    if (!options->verb->by_pairs)
        create_route(bench);
    create_choices(bench);
    if (has_rows(bench))
        create_rows(bench);
    create_counts(bench);
    return 0;
}

void perf_bench_free(struct perf_bench *bench)
{
    for (int set = 0; set < PERF_MOST_ID_SETS; set++)
        perf_buffer_free(&bench->ids[set]);
    perf_buffer_free(&bench->token_weights);
    perf_buffer_free(&bench->counts);
    perf_buffer_free(&bench->displs);
    perf_buffer_free(&bench->recv_counts);
    perf_buffer_free(&bench->recv_displs);
    perf_buffer_free(&bench->weight_grads);
    perf_buffer_free(&bench->forward);
    perf_buffer_free(&bench->row_weights);
    perf_buffer_free(&bench->rows);
    perf_buffer_free(&bench->sums);
    perf_buffer_free(&bench->tokens);
    for (int f = 0; f < EPX_MAX_FIELDS; f++) {
        perf_buffer_free(&bench->field_tokens[f]);
        perf_buffer_free(&bench->field_rows[f]);
    }
    for (int i = 0; i < PERF_VIEW_ARRAYS; i++)
        perf_buffer_free(&bench->view_arrays[i]);
    free(bench->peer_displs);
    if (bench->route)
        ranks_must(EPX_Route_free(&bench->route));
    perf_load_free(&bench->load);
}

void perf_bench_take(struct perf_bench *bench, int64_t i)
{
    bench->set = (int)(i % bench->load.num_sets);
    perf_load_take(&bench->load, bench->set);
}

const int64_t *perf_bench_ids(const struct perf_bench *bench)
{
    return bench->ids[bench->set].address;
}

void perf_bench_operate(struct perf_bench *bench)
{
    bench->options->verb->start(bench);
    ranks_must(EPX_Wait_enqueue(&bench->request, bench->stream));
}

void perf_bench_poison(struct perf_bench *bench)
{
    const struct perf_verb *verb = bench->options->verb;

    if (verb->spreads)
        perf_buffer_poison(&bench->rows);
    for (int f = 0; f < bench->options->num_fields; f++)
        perf_buffer_poison(&bench->field_rows[f]);
    if (verb->spreads && !verb->backward)
        perf_buffer_poison(&bench->row_weights);
    if (verb->gathers)
        perf_buffer_poison(&bench->sums);
    if (verb->backward)
        perf_buffer_poison(&bench->weight_grads);
    perf_buffer_poison(&bench->recv_counts);
}

/* Returns the image of an array of the view; NULL if the view has no such array. */
static const void *look(struct perf_bench *bench, int i, const void *array, int64_t num,
                        size_t size)
{
    struct perf_buffer *buffer = &bench->view_arrays[i];

    if (!array)
        return NULL;
    if (!buffer->space)
        perf_buffer_borrow(buffer, bench->options->space, (void *)(uintptr_t)array,
                           num * (int64_t)size);
    return perf_buffer_fetch(buffer);
}

static void look_at_view(struct perf_bench *bench)
{
    const EPX_Route_view *view = &bench->view;
    int64_t experts = view->num_local_experts, rows = view->capacity;

    bench->seen.expert_counts = look(bench, 0, view->expert_counts, experts, sizeof(int32_t));
    bench->seen.expert_offsets = look(bench, 1, view->expert_offsets, experts + 1, sizeof(int64_t));
    bench->seen.num_rows = look(bench, 2, view->num_rows, 1, sizeof(int64_t));
    bench->seen.required_rows = look(bench, 3, view->required_rows, 1, sizeof(int64_t));
    bench->seen.slots = look(bench, 4, view->slots, bench->load.pairs, sizeof(int32_t));
    bench->seen.row_tokens = look(bench, 5, view->row_tokens, rows, sizeof(int32_t));
    bench->seen.row_ranks = look(bench, 6, view->row_ranks, rows, sizeof(int32_t));
}

void perf_bench_fetch(struct perf_bench *bench)
{
    const struct perf_verb *verb = bench->options->verb;

    if (verb->spreads) {
        perf_buffer_fetch(&bench->rows);
        perf_buffer_fetch(&bench->row_weights);
    }
    for (int f = 0; f < bench->options->num_fields; f++)
        perf_buffer_fetch(&bench->field_rows[f]);
    if (verb->gathers)
        perf_buffer_fetch(&bench->sums);
    if (verb->backward)
        perf_buffer_fetch(&bench->weight_grads);
    if (verb->by_pairs) {
        perf_buffer_fetch(&bench->recv_counts);
        perf_buffer_fetch(&bench->recv_displs);
    } else {
        look_at_view(bench);
    }
}

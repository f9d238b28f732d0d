/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_neighbor.c - times an exchange of one row with each face of a periodic box of ranks. All
 * ways take turns in each iteration, so that a disturbance of the machine meets all of them. In the
 * memory of GPUs there are EPX's ways, by calls or replayed from a graph of a batch.
 */
#include "epx_perf/neighbor/perf_neighbor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/bench/perf_comm.h"
#include "epx_perf/neighbor/neighbor_options.h"
#include "epx_perf/neighbor/neighbor_ways.h"
#include "epx_perf/space/perf_alloc.h"
#include "epx_perf/space/perf_time.h"
#include "json.h"
#include "ranks/ranks.h"

enum { MOST_WAYS = 8, MOST_BATCH = 200, BATCH_BYTES = 1 << 20 };

/* The neighbours on both sides in each dimension of more than one rank. */
static void find_faces(struct neighbor_box *box)
{
    int dims[3] = {0, 0, 0}, periods[3] = {1, 1, 1};

    MPI_Dims_create(ranks_num(), 3, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periods, 0, &box->topology);
    for (int d = 0; d < 3; d++)
        if (dims[d] > 1) {
            MPI_Cart_shift(box->topology, d, 1, &box->faces[box->degree],
                           &box->faces[box->degree + 1]);
            box->degree += 2;
        }
}

/* MPI's neighbour collectives take the faces as a graph, as EPX does. */
static void make_graphs(struct neighbor_box *box, const struct perf_space *space)
{
    MPI_Info info;
    int weights[NEIGHBOR_MOST_DEGREE] = {1, 1, 1, 1, 1, 1};
    MPI_Comm cart;

    find_faces(box);
    cart = box->topology;
    MPI_Dist_graph_create_adjacent(cart, box->degree, box->faces, weights, box->degree, box->faces,
                                   weights, MPI_INFO_NULL, 0, &box->topology);
    MPI_Comm_free(&cart);
    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_memory", space->hint);
    ranks_must(EPX_Comm_create(box->topology, info, &box->comm));
    MPI_Info_free(&info);
    ranks_must(EPX_Graph_create_adjacent(box->comm, box->degree, box->faces, box->degree,
                                         box->faces, &box->graph));
}

static void free_graphs(struct neighbor_box *box)
{
    ranks_must(EPX_Graph_free(&box->graph));
    ranks_must(EPX_Comm_free(&box->comm));
    MPI_Comm_free(&box->topology);
}

static void make_numbers(struct perf_buffer *buffer, const struct perf_space *space, int num,
                         int step)
{
    int64_t *image;

    perf_buffer_create(buffer, space, num * (int64_t)sizeof(*image), EPX_COMM_NULL);
    image = perf_buffer_image(buffer);
    for (int i = 0; i < num; i++)
        image[i] = step ? i * step : 1;
    perf_buffer_send(buffer);
}

static void make_rows(struct neighbor_box *box, const struct perf_space *space, int row_bytes)
{
    int64_t bytes = (int64_t)box->degree * row_bytes;

    box->row_bytes = row_bytes;
    box->stream = space->stream ? space->stream() : EPX_STREAM_NULL;
    perf_buffer_create(&box->sent, space, bytes, EPX_COMM_NULL);
    perf_buffer_create(&box->got, space, bytes, EPX_COMM_NULL);
    perf_buffer_create(&box->window, space, bytes, box->comm);
    make_numbers(&box->counts, space, box->degree, 0);
    make_numbers(&box->displs, space, box->degree, 1);
    make_numbers(&box->came, space, box->degree, 0);
    make_numbers(&box->came_at, space, box->degree, 0);
    for (int i = 0; i < box->degree; i++) {
        box->int_counts[i] = row_bytes;
        box->int_displs[i] = i * row_bytes;
    }
}

static void free_rows(struct neighbor_box *box)
{
    struct perf_buffer *buffers[] = {&box->window, &box->sent, &box->got,    &box->counts,
                                     &box->displs, &box->came, &box->came_at};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(*buffers); i++)
        perf_buffer_free(buffers[i]);
}

/* Byte b of what a rank sends the k-th time to another. */
static char byte_of(int from, int to, int k, int b)
{
    return (char)(from * 31 + to * 17 + k * 7 + b);
}

/* How often the rank of a face stands before it. */
static int times_before(const struct neighbor_box *box, int face)
{
    int times = 0;

    for (int i = 0; i < face; i++)
        times += box->faces[i] == box->faces[face];
    return times;
}

static void fill_rows(struct neighbor_box *box, int own)
{
    char *rows = perf_buffer_image(&box->sent);

    for (int i = 0; i < box->degree; i++)
        for (int b = 0; b < box->row_bytes; b++)
            rows[i * box->row_bytes + b] = byte_of(own, box->faces[i], times_before(box, i), b);
    perf_buffer_send(&box->sent);
}

/* Wrong rows on all ranks; forgets the rows. */
static int64_t count_wrong(struct neighbor_box *box, const struct neighbor_way *way, int own)
{
    struct perf_buffer *buffer = way->by_epx ? &box->window : &box->got;
    char *rows = perf_buffer_fetch(buffer);
    int64_t wrong = 0;

    for (int i = 0; i < box->degree; i++)
        for (int b = 0; b < box->row_bytes; b++)
            if (rows[i * box->row_bytes + b] !=
                byte_of(box->faces[i], own, times_before(box, i), b)) {
                wrong++;
                break;
            }
    perf_buffer_poison(buffer);
    ranks_sum(&wrong, 1);
    return wrong;
}

struct result {
    int row_bytes, batch;
    struct perf_time time[MOST_WAYS]; /* of an exchange */
    int64_t wrong;
};

/* What is timed of a way. */
struct timed {
    double *times; /* [iterations] */
    void *graph;   /* of a batch; NULL: the way is called */
};

static void exchange_batch(struct neighbor_box *box, const struct neighbor_way *way, int batch)
{
    for (int k = 0; k < batch; k++)
        way->exchange(box);
}

static void prepare(struct neighbor_box *box, const struct neighbor_options *options,
                    const struct neighbor_way *way, int batch, struct timed *timed)
{
    int kernels;

    *timed = (struct timed){perf_alloc(options->iterations, sizeof(*timed->times)), NULL};
    way->prepare(box);
    if (!options->graph)
        return;
    options->space->start_capture();
    exchange_batch(box, way, batch);
    timed->graph = options->space->end_capture(&kernels);
}

static void run_batch(struct neighbor_box *box, const struct neighbor_options *options, int w,
                      const struct timed *timed, int batch)
{
    if (timed->graph)
        options->space->replay(timed->graph);
    else
        exchange_batch(box, &neighbor_ways[w], batch);
}

/* Times a batch, in seconds. Exchanges come before it, until the caches hold what this way leaves
 * in them, not what the way before it did. */
static double time_batch(struct neighbor_box *box, const struct neighbor_options *options, int w,
                         const struct timed *timed, int batch)
{
    for (int settled = 0; settled < options->settle; settled += batch)
        run_batch(box, options, w, timed, batch);
    ranks_barrier();
    options->space->start_clock();
    run_batch(box, options, w, timed, batch);
    return options->space->stop_clock();
}

static void time_ways(struct neighbor_box *box, const struct neighbor_options *options,
                      int iteration, struct timed timed[MOST_WAYS], struct result *result)
{
    for (int w = 0; neighbor_ways[w].name; w++) {
        const struct neighbor_way *way = &neighbor_ways[w];
        double seconds;

        if (!neighbor_is_wanted(options, way))
            continue;
        seconds = time_batch(box, options, w, &timed[w], result->batch);
        if (iteration >= 0)
            timed[w].times[iteration] = seconds / result->batch;
        if (options->check)
            result->wrong += count_wrong(box, way, ranks_own());
    }
}

static void measure(struct neighbor_box *box, const struct neighbor_options *options,
                    struct result *result)
{
    struct timed timed[MOST_WAYS] = {{NULL, NULL}};

    for (int w = 0; neighbor_ways[w].name; w++)
        if (neighbor_is_wanted(options, &neighbor_ways[w]))
            prepare(box, options, &neighbor_ways[w], result->batch, &timed[w]);
    fill_rows(box, ranks_own());
    for (int i = -options->warm_up; i < options->iterations; i++)
        time_ways(box, options, i, timed, result);
    perf_expect_no_error(box->comm); /* where EPX_Wait_enqueue cannot tell */
    for (int w = 0; neighbor_ways[w].name; w++) {
        if (!neighbor_is_wanted(options, &neighbor_ways[w]))
            continue;
        result->time[w] = perf_summarize(timed[w].times, options->iterations);
        if (timed[w].graph)
            options->space->free_graph(timed[w].graph);
        neighbor_ways[w].end(box);
        free(timed[w].times);
    }
}

static int default_batch(int row_bytes)
{
    int batch = BATCH_BYTES / row_bytes;

    return batch < 1 ? 1 : batch < MOST_BATCH ? batch : MOST_BATCH;
}

static void print_head(const struct neighbor_options *options, const struct neighbor_box *box)
{
    char transport[EPX_MAX_HINT_STRING];

    perf_read_hint(box->comm, "epx_transport", transport);
    printf("# neighbor, %d ranks, %d faces, transport %s; %s us of an exchange%s\n%10s",
           ranks_num(), box->degree, transport, options->least_time ? "least" : "median",
           options->graph ? ", replayed from a graph" : "", "bytes");
    for (const struct neighbor_way *way = neighbor_ways; way->name; way++)
        if (neighbor_is_wanted(options, way))
            printf(" %14s", way->name);
    printf(" %8s\n", strcmp(options->peer, "none") ? "ratio" : "");
}

static double shown(const struct neighbor_options *options, const struct result *result, int way)
{
    return options->least_time ? result->time[way].min : result->time[way].median;
}

/* The fastest of what is not EPX. */
static double best_peer(const struct neighbor_options *options, const struct result *result)
{
    double best = 0;

    for (int w = 0; neighbor_ways[w].name; w++)
        if (!neighbor_ways[w].by_epx && neighbor_is_wanted(options, &neighbor_ways[w]) &&
            (best == 0 || shown(options, result, w) < best))
            best = shown(options, result, w);
    return best;
}

static void print_line(const struct neighbor_options *options, const struct result *result)
{
    printf("%10d", result->row_bytes);
    for (int w = 0; neighbor_ways[w].name; w++)
        if (neighbor_is_wanted(options, &neighbor_ways[w]))
            printf(" %14.2f", 1e6 * shown(options, result, w));
    if (strcmp(options->peer, "none"))
        printf(" %8.2f", best_peer(options, result) / shown(options, result, 0));
    if (result->wrong)
        printf("  %lld wrong rows", (long long)result->wrong);
    putchar('\n');
    fflush(stdout);
}

static void write_point(struct json *json, const struct neighbor_options *options,
                        const struct result *result)
{
    json_open(json, NULL, '{');
    json_number(json, "row_bytes", result->row_bytes);
    json_number(json, "batch", result->batch);
    for (int w = 0; neighbor_ways[w].name; w++)
        if (neighbor_is_wanted(options, &neighbor_ways[w]))
            json_number(json, neighbor_ways[w].name,
                        (int64_t)(1e9 * shown(options, result, w) + 0.5));
    json_close(json, '}');
}

/* Times in nanoseconds. */
static int write_json(const struct neighbor_options *options, const struct neighbor_box *box,
                      const struct result *results, int num)
{
    FILE *file = fopen(options->json, "w");
    struct json json = {file, 0, 0};
    char transport[EPX_MAX_HINT_STRING];

    if (!file) {
        perror(options->json);
        return -1;
    }
    json_open(&json, NULL, '{');
    json_text(&json, "benchmark", "neighbor");
    perf_read_hint(box->comm, "epx_transport", transport);
    json_text(&json, "transport", transport);
    json_text(&json, "memory", options->space->name);
    json_number(&json, "graph", options->graph);
    json_number(&json, "ranks", ranks_num());
    json_number(&json, "faces", box->degree);
    json_open(&json, options->least_time ? "least_ns" : "median_ns", '[');
    for (int i = 0; i < num; i++)
        write_point(&json, options, &results[i]);
    json_close(&json, ']');
    json_close(&json, '}');
    fputc('\n', file);
    return fclose(file);
}

static int sweep(const struct neighbor_options *options, struct neighbor_box *box, int rank)
{
    enum { MOST_POINTS = 32 };
    struct result results[MOST_POINTS] = {{0}};
    int num = 0, wrong = 0;

    for (int64_t bytes = options->least; bytes <= options->most && num < MOST_POINTS; bytes *= 2) {
        struct result *result = &results[num++];

        result->row_bytes = (int)bytes;
        result->batch = options->batch ? options->batch : default_batch((int)bytes);
        make_rows(box, options->space, (int)bytes);
        measure(box, options, result);
        free_rows(box);
        wrong |= result->wrong != 0;
        if (rank == 0)
            print_line(options, result);
    }
    if (rank == 0 && options->check && !wrong)
        puts("# every row right");
    if (rank == 0 && options->json && write_json(options, box, results, num))
        wrong = 1;
    return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

int perf_is_neighbor(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "neighbor") == 0;
}

int perf_neighbor(int argc, char **argv, int rank)
{
    struct neighbor_box box = {.degree = 0};
    struct neighbor_options options;
    int rc;

    if (neighbor_read_options(argc, argv, rank, &options))
        return 2;
    if (options.help) {
        if (rank == 0)
            fputs(neighbor_usage, stdout);
        return EXIT_SUCCESS;
    }
    if (!ranks_by_mpi()) {
        fputs("epx_perf: neighbor: MPI did not start these ranks\n", stderr);
        return EXIT_FAILURE;
    }
    if (options.space->open())
        return EXIT_FAILURE;
    make_graphs(&box, options.space);
    if (rank == 0)
        print_head(&options, &box);
    rc = sweep(&options, &box, rank);
    free_graphs(&box);
    options.space->close();
    return rc;
}

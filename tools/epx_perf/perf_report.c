/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_report.c - columns for people, JSON for programs. */
#include "epx_perf/perf_report.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "epx_perf/bench/perf_options.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/peer/peer_kinds.h"
#include "epx_perf/perf_measure.h"
#include "epx_perf/space/perf_space.h"
#include "json.h"

static const char *place_name(const struct perf_options *options)
{
    return options->place == PERF_PLACE_WINDOW ? "alloc" : "malloc";
}

static const char *layout_name(EPX_Layout layout)
{
    static const char *const names[] = {
        [EPX_EXPERT_MAJOR] = "expert", [EPX_RANK_MAJOR] = "rank", [EPX_EXPERT_SLAB] = "slab"};

    return names[layout];
}

static void print_units(const struct perf_options *options)
{
    printf("#%8s %9s %10s %10s %10s %9s %9s %6s", "", "(B)", "(us)", "(us)", "(us)", "(GB/s)",
           "(GB/s)", "(%)");
    if (options->ceiling)
        printf(" %7s %7s", "(%)", "(%)");
    if (options->full)
        printf(" %12s %12s %9s %10s %10s %10s %7s", "(B)", "(B)", "(GB/s)", "(us)", "(us)", "(us)",
               "(%)");
    if (options->overlap)
        printf(" %10s %10s %7s %10s %7s", "(us)", "(us)", "(%)", "(us)", "(%)");
    if (options->peer)
        printf(" %10s %6s", "(us)", "");
    if (options->peer && options->ceiling)
        printf(" %7s", "(%)");
    if (options->check)
        printf(" %7s", "rows");
    if (perf_error_wanted(options))
        printf(" %9s %9s", "", "");
    putchar('\n');
}

static void print_columns(const struct perf_options *options)
{
    printf("#%8s %9s %10s %10s %10s %9s %9s %6s", "tokens", "row", "median", "min", "max", "wire",
           "logical", "copy");
    if (options->ceiling)
        printf(" %7s %7s", "of_ceil", "log_of");
    if (options->full)
        printf(" %12s %12s %9s %10s %10s %10s %7s", "wire", "logical", "copy", "barrier", "compute",
               "both", "overlap");
    if (options->overlap)
        printf(" %10s %10s %7s %10s %7s", "gemm", "beside", "slower", "both", "overlap");
    if (options->peer)
        printf(" %10s %6s", "peer", "ratio");
    if (options->peer && options->ceiling)
        printf(" %7s", "peer_of");
    if (options->check)
        printf(" %7s", "wrong");
    if (perf_error_wanted(options))
        printf(" %9s %9s", "err_type", "err_f32");
    putchar('\n');
    print_units(options);
}

static void print_machine(const struct perf_run *run)
{
    const struct perf_machine *machine = &run->machine;

    printf("# %d node%s of %d rank%s on %d CPU%s, %s\n", machine->nodes,
           machine->nodes == 1 ? "" : "s", machine->ranks, machine->ranks == 1 ? "" : "s",
           machine->cpus, machine->cpus == 1 ? "" : "s", machine->processor);
}

/* Prints how the numbers in the columns come about. */
static void print_method(const struct perf_run *run)
{
    const struct perf_options *options = run->options;

    printf("# %d iterations after %d, time of the slowest rank\n", (int)options->iterations,
           (int)options->warmup);
    if (options->id_sets > 1)
        printf("# operations route with %d sets of ids in turn\n", options->id_sets);
    if (options->max_sms)
        printf("# epx_max_sms %d\n", (int)options->max_sms);
    if (options->batch > 1 || options->graph)
        printf("# a time is that of %d operations in a row, divided by %d\n", (int)options->batch,
               (int)options->batch);
    if (options->graph)
        printf("# EPX is replayed from a graph%s\n", options->peer ? ", the peer is called" : "");
    if (options->ceiling && run->size == 1)
        puts("# ceiling: one rank, no peers");
    else if (options->ceiling)
        printf("# ceiling: %.1f GB/s stored by each GPU into the others\n", run->ceiling * 1e-9);
}

void perf_report_head(const struct perf_run *run)
{
    const struct perf_options *options = run->options;
    char version[EPX_MAX_LIBRARY_VERSION_STRING];
    int length;

    EPX_Get_library_version(version, &length);
    printf("# %s\n# %s on %d rank%s, memory %s, transport %s, receive buffers from %s\n", version,
           options->verb->name, run->size, run->size == 1 ? "" : "s", options->space->name,
           run->transport,
           options->place == PERF_PLACE_WINDOW ? "EPX_Alloc_mem" : options->space->heap);
    printf("# top-%d of %d experts, %s, %s, layout %s, alignment %d, peer %s\n",
           (int)options->top_k, (int)options->experts, options->skew, options->datatype_name,
           layout_name(options->layout), (int)options->alignment, perf_peer_name(options->peer));
    print_machine(run);
    print_method(run);
    print_columns(options);
}

/* A rate in GB/s; 0 if no time passed. */
static double rate(int64_t bytes, double seconds)
{
    return seconds > 0 ? (double)bytes / seconds * 1e-9 : 0;
}

static double ratio(double above, double below)
{
    return below > 0 ? above / below : 0;
}

static void print_number(int width, int decimals, double value, int known)
{
    if (known)
        printf(" %*.*f", width, decimals, value);
    else
        printf(" %*s", width, "-");
}

static void print_full(const struct perf_result *result)
{
    int known = result->logical_bytes > 0, overlaps = result->overlap >= 0;
    double copy = rate(result->logical_bytes, result->time[PERF_COPY].median);

    print_number(12, 0, (double)result->wire_bytes, known);
    print_number(12, 0, (double)result->logical_bytes, known);
    print_number(9, 2, copy, known);
    print_number(10, 2, result->time[PERF_BARRIER].median * 1e6, 1);
    print_number(10, 2, result->compute * 1e6, overlaps);
    print_number(10, 2, result->both * 1e6, overlaps);
    print_number(7, 1, result->overlap * 100, overlaps);
}

static double of_ceiling(const struct perf_run *run, int64_t bytes, const struct perf_time *time)
{
    return ratio(rate(bytes, time->median), run->ceiling * 1e-9);
}

void perf_report_line(const struct perf_run *run, const struct perf_result *result)
{
    const struct perf_options *options = run->options;
    const struct perf_time *time = &result->time[PERF_EPX];
    const struct perf_time *peer = &result->time[PERF_PEER];
    int known = result->logical_bytes > 0, limited = known && run->ceiling > 0;

    printf(" %8d %9lld %10.2f %10.2f %10.2f", result->tokens, (long long)result->row_bytes,
           time->median * 1e6, time->min * 1e6, time->max * 1e6);
    print_number(9, 3, rate(result->wire_bytes, time->median), known);
    print_number(9, 3, rate(result->logical_bytes, time->median), known);
    print_number(6, 1, 100 * ratio(result->time[PERF_COPY].median, time->median), known);
    if (options->ceiling) {
        print_number(7, 1, 100 * of_ceiling(run, result->wire_bytes, time), limited);
        print_number(7, 1, 100 * of_ceiling(run, result->logical_bytes, time), limited);
    }
    if (options->full)
        print_full(result);
    if (options->overlap)
        printf(" %10.2f %10.2f %7.1f %10.2f %7.1f", result->gemm * 1e6, result->gemm_beside * 1e6,
               100 * (ratio(result->gemm_beside, result->gemm) - 1), result->both * 1e6,
               100 * result->overlap);
    if (options->peer)
        printf(" %10.2f %6.2f", peer->median * 1e6, ratio(peer->median, time->median));
    if (options->peer && options->ceiling)
        print_number(7, 1, 100 * of_ceiling(run, result->wire_bytes, peer), limited);
    if (options->check)
        printf(" %7lld", (long long)result->wrong_rows);
    if (perf_error_wanted(options))
        printf(" %9.1e %9.1e", result->errors[PERF_PARTIALS_DATATYPE],
               result->errors[PERF_PARTIALS_FLOAT32]);
    putchar('\n');
    fflush(stdout);
}

void perf_report_noise(const struct perf_result *results, int num)
{
    const struct perf_result *first = NULL;
    int noisy = 0;

    for (int i = 0; i < num; i++)
        if (results[i].time[PERF_EPX].min < results[i].time[PERF_EPX].median / 2) {
            first = first ? first : &results[i];
            noisy++;
        }
    if (!first)
        return;
    printf("# warning: min is less than half the median at %d of %d points, first at %d tokens of "
           "%lld B: something\n#          else disturbed most iterations (other programs, ranks "
           "that share CPUs); run more of them (-i)\n",
           noisy, num, first->tokens, (long long)first->row_bytes);
}

static void write_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, "  \"%s\": ", name);
    json_write_text(file, text);
    fputs(",\n", file);
}

static void write_number(FILE *file, const char *name, int64_t number)
{
    fprintf(file, "  \"%s\": %lld,\n", name, (long long)number);
}

static void write_date(FILE *file)
{
    time_t now = time(NULL);
    char text[32];

    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    write_text(file, "date", text);
}

static void write_machine(FILE *file, const struct perf_run *run)
{
    const struct perf_space *space = run->options->space;
    char device[256];

    write_text(file, "processor", run->machine.processor);
    write_number(file, "nodes", run->machine.nodes);
    write_number(file, "ranks_per_node", run->machine.ranks);
    write_number(file, "cpus_per_node", run->machine.cpus);
    if (!space->read_device)
        return;
    space->read_device(device, sizeof(device));
    write_text(file, "device", device);
}

static void write_options(FILE *file, const struct perf_run *run)
{
    const struct perf_options *options = run->options;
    char version[EPX_MAX_LIBRARY_VERSION_STRING];
    int length;

    EPX_Get_library_version(version, &length);
    write_text(file, "library", version);
    write_date(file);
    write_text(file, "arguments", options->command_line);
    write_machine(file, run);
    write_text(file, "command", options->verb->name);
    write_text(file, "transport", run->transport);
    write_text(file, "memory", options->space->name);
    write_text(file, "receive_buffer", place_name(options));
    write_text(file, "skew", options->skew);
    write_text(file, "datatype", options->datatype_name);
    write_text(file, "layout", layout_name(options->layout));
    write_text(file, "peer", perf_peer_name(options->peer));
    write_number(file, "ranks", run->size);
    write_number(file, "top_k", options->top_k);
    write_number(file, "experts", options->experts);
    write_number(file, "alignment", options->alignment);
    write_number(file, "rows_per_expert", options->rows_per_expert);
    write_number(file, "iterations", options->iterations);
    write_number(file, "warm_up", options->warmup);
    write_number(file, "tests", options->tests);
    write_number(file, "seed", options->seed);
    write_number(file, "id_sets", options->id_sets);
    write_number(file, "batch", options->batch);
    write_number(file, "graph", options->graph);
    write_number(file, "max_sms", options->max_sms);
    if (run->ceiling > 0)
        fprintf(file, "  \"ceiling_GBps\": %.4f,\n", run->ceiling * 1e-9);
}

static void write_time(FILE *file, const char *name, const struct perf_time *time)
{
    fprintf(file, ", \"%s_us\": {\"median\": %.3f, \"min\": %.3f, \"max\": %.3f}", name,
            time->median * 1e6, time->min * 1e6, time->max * 1e6);
}

static void write_rates(FILE *file, const struct perf_run *run, const struct perf_result *result)
{
    const struct perf_time *time = result->time;

    fprintf(file, ", \"wire_GBps\": %.4f, \"logical_GBps\": %.4f, \"copy_GBps\": %.4f",
            rate(result->wire_bytes, time[PERF_EPX].median),
            rate(result->logical_bytes, time[PERF_EPX].median),
            rate(result->logical_bytes, time[PERF_COPY].median));
    fprintf(file, ", \"copy_fraction\": %.4f",
            ratio(time[PERF_COPY].median, time[PERF_EPX].median));
    if (run->ceiling > 0)
        fprintf(file, ", \"ceiling_fraction\": %.4f, \"logical_ceiling_fraction\": %.4f",
                of_ceiling(run, result->wire_bytes, &time[PERF_EPX]),
                of_ceiling(run, result->logical_bytes, &time[PERF_EPX]));
    if (run->ceiling > 0 && run->options->peer)
        fprintf(file, ", \"peer_ceiling_fraction\": %.4f",
                of_ceiling(run, result->wire_bytes, &time[PERF_PEER]));
}

/* How many kernels an operation is, where a graph tells. */
static void write_kernels(FILE *file, const struct perf_result *result)
{
    if (result->kernels > 0)
        fprintf(file, ", \"kernels\": %.1f", result->kernels);
}

static void write_result(FILE *file, const struct perf_run *run, const struct perf_result *result)
{
    const struct perf_options *options = run->options;
    const struct perf_time *time = result->time;

    fprintf(file, "    {\"tokens\": %d, \"row_bytes\": %lld, \"wire_bytes\": %lld", result->tokens,
            (long long)result->row_bytes, (long long)result->wire_bytes);
    fprintf(file, ", \"logical_bytes\": %lld", (long long)result->logical_bytes);
    write_kernels(file, result);
    write_time(file, "time", &time[PERF_EPX]);
    write_time(file, "barrier", &time[PERF_BARRIER]);
    if (result->logical_bytes) {
        write_time(file, "copy", &time[PERF_COPY]);
        write_rates(file, run, result);
    }
    if (options->peer) {
        write_time(file, "peer", &time[PERF_PEER]);
        fprintf(file, ", \"peer_ratio\": %.4f",
                ratio(time[PERF_PEER].median, time[PERF_EPX].median));
    }
    if (result->overlap >= 0)
        fprintf(file, ", \"compute_us\": %.3f, \"both_us\": %.3f, \"overlap\": %.4f",
                result->compute * 1e6, result->both * 1e6, result->overlap);
    if (options->overlap)
        fprintf(file, ", \"gemm_us\": %.3f, \"gemm_beside_us\": %.3f", result->gemm * 1e6,
                result->gemm_beside * 1e6);
    if (options->check)
        fprintf(file, ", \"wrong_rows\": %lld", (long long)result->wrong_rows);
    if (perf_error_wanted(options))
        fprintf(file, ", \"error_partials_datatype\": %.4e, \"error_partials_float32\": %.4e",
                result->errors[PERF_PARTIALS_DATATYPE], result->errors[PERF_PARTIALS_FLOAT32]);
    fputc('}', file);
}

/* A duplicate of standard output, whose place standard error takes. */
static FILE *take_stdout(void)
{
    int file = dup(STDOUT_FILENO);

    fflush(stdout);
    if (file < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return NULL;
    return fdopen(file, "w");
}

FILE *perf_report_open(const char *name)
{
    FILE *file = strcmp(name, "-") == 0 ? take_stdout() : fopen(name, "w");

    if (!file)
        fprintf(stderr, "epx_perf: %s: %s\n", name, strerror(errno));
    return file;
}

int perf_report_json(FILE *file, const struct perf_run *run, const struct perf_result *results,
                     int num)
{
    int failed;

    fputs("{\n", file);
    write_options(file, run);
    fputs("  \"results\": [\n", file);
    for (int i = 0; i < num; i++) {
        write_result(file, run, &results[i]);
        fputs(i + 1 < num ? ",\n" : "\n", file);
    }
    fputs("  ]\n}\n", file);
    failed = ferror(file);
    if (fclose(file) || failed) {
        fprintf(stderr, "epx_perf: %s: not written\n", run->options->json);
        return -1;
    }
    return 0;
}

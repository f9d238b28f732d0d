/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbor_options.c - the command line of epx_perf neighbor. */
#include "epx_perf/neighbor/neighbor_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/space/perf_spaces.h"

const char neighbor_usage[] =
    "usage: epx_perf neighbor [options]\n"
    "  -m, --row-bytes MIN[:MAX]  bytes for each face, doubled up to MAX (8:1m)\n"
    "  -i, --iterations N         timed iterations (20)\n"
    "  -x, --warm-up N            iterations before them (3)\n"
    "      --settle N             exchanges before each timing, without the clock (20)\n"
    "  -c, --check                check every row\n"
    "      --least                show the least time of the iterations, not the median\n"
    "      --batch N              exchanges in a timing (200, less of long rows)\n"
    "  -d, --memory M             host or cuda (host)\n"
    "      --graph                replay EPX's batch from a CUDA graph\n"
    "      --peer P               mpi-neighbor, mpi-ineighbor, mpi-persistent, all or none (all;\n"
    "                             with -d cuda none)\n"
    "      --json FILE            write the results to FILE too\n"
    "  -h, --help                 this text\n";

static const struct option long_options[] = {{"row-bytes", required_argument, NULL, 'm'},
                                             {"iterations", required_argument, NULL, 'i'},
                                             {"warm-up", required_argument, NULL, 'x'},
                                             {"settle", required_argument, NULL, 's'},
                                             {"check", no_argument, NULL, 'c'},
                                             {"least", no_argument, NULL, 'l'},
                                             {"batch", required_argument, NULL, 'b'},
                                             {"memory", required_argument, NULL, 'd'},
                                             {"graph", no_argument, NULL, 'g'},
                                             {"peer", required_argument, NULL, 'p'},
                                             {"json", required_argument, NULL, 'j'},
                                             {"help", no_argument, NULL, 'h'},
                                             {NULL, 0, NULL, 0}};

/* A number from 0 to 2^28, with k or m behind it; -1 if it is none. *end is behind it. */
static int64_t read_number(const char *text, char **end)
{
    long long number = strtoll(text, end, 10);

    if (*end == text || number < 0 || number > 1 << 28)
        return -1;
    if (**end == 'k' || **end == 'm')
        number <<= *(*end)++ == 'k' ? 10 : 20;
    return number <= 1 << 28 ? number : -1;
}

static int read_range(const char *text, struct neighbor_options *options)
{
    char *end;

    options->least = options->most = read_number(text, &end);
    if (options->least > 0 && *end == ':')
        options->most = read_number(end + 1, &end);
    return options->least > 0 && options->most >= options->least && *end == '\0' ? 0 : -1;
}

static int read_count(const char *text, int least, int *count)
{
    char *end;
    int64_t number = read_number(text, &end);

    *count = (int)number;
    return number >= least && *end == '\0' ? 0 : -1;
}

static int read_option(int option, struct neighbor_options *options)
{
    switch (option) {
    case 'm': return read_range(optarg, options);
    case 'i': return read_count(optarg, 1, &options->iterations);
    case 'x': return read_count(optarg, 0, &options->warm_up);
    case 's': return read_count(optarg, 0, &options->settle);
    case 'b': return read_count(optarg, 1, &options->batch);
    case 'c': options->check = 1; return 0;
    case 'l': options->least_time = 1; return 0;
    case 'd': options->space = perf_space_find(optarg); return options->space ? 0 : -1;
    case 'g': options->graph = 1; return 0;
    case 'p': options->peer = optarg; return 0;
    case 'j': options->json = optarg; return 0;
    case 'h': options->help = 1; return 0;
    default: return -1;
    }
}

static const char *name_of(int option)
{
    const struct option *named = long_options;

    while (named->name && named->val != option)
        named++;
    return named->name;
}

int neighbor_is_wanted(const struct neighbor_options *options, const struct neighbor_way *way)
{
    return way->by_epx || strcmp(options->peer, "all") == 0 ||
           strcmp(options->peer, way->name) == 0;
}

static int has_peer(const struct neighbor_options *options)
{
    for (const struct neighbor_way *way = neighbor_ways; way->name; way++)
        if (!way->by_epx && neighbor_is_wanted(options, way))
            return 1;
    return strcmp(options->peer, "none") == 0;
}

/* NULL, or what the options ask for that does not go together. */
static const char *find_contradiction(const struct neighbor_options *options)
{
    int on_host = !options->space->replay;

    if (options->graph && on_host)
        return "--graph needs -d cuda";
    return on_host || strcmp(options->peer, "none") == 0 ? NULL : "MPI's ways need host memory";
}

int neighbor_read_options(int argc, char **argv, int rank, struct neighbor_options *options)
{
    const char *contradiction;
    int option, wrong = 0;

    *options = (struct neighbor_options){
        .least = 8, .most = 1 << 20, .iterations = 20, .warm_up = 3, .settle = 20};
    options->space = &perf_space_host;
    opterr = rank == 0;
    optind = 2;
    while ((option = getopt_long(argc, argv, "m:i:x:d:ch", long_options, NULL)) != -1)
        if (read_option(option, options))
            wrong = option == '?' ? '?' : option;
    if (rank == 0 && wrong && wrong != '?')
        fprintf(stderr, "epx_perf: neighbor: a wrong value of --%s\n", name_of(wrong));
    if (!options->peer)
        options->peer = options->space && options->space->replay ? "none" : "all";
    if (!wrong && (contradiction = find_contradiction(options))) {
        wrong = 1;
        if (rank == 0)
            fprintf(stderr, "epx_perf: neighbor: %s\n", contradiction);
    }
    if (!wrong && (optind < argc || !has_peer(options))) {
        wrong = 1;
        if (rank == 0)
            fprintf(stderr, "epx_perf: neighbor: what is \"%s\"?\n",
                    optind < argc ? argv[optind] : options->peer);
    }
    return wrong ? -1 : 0;
}

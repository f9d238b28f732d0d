/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_info.c - prints what the library is: version, build, hints, and which transports the ranks
 * of this job could use, for people or as JSON. Under mpiexec rank 0 prints for all ranks.
 */
#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "configure_line.h"
#include "coll/attach.h"
#include "control/contact.h"
#include "epx.h"
#include "info_waits.h"
#include "info_ways.h"
#include "json.h"
#include "option_meant.h"
#include "ranks/by_address.h"

enum {
    SHOW_LIBRARY = 1,
    SHOW_HINTS = 2,
    SHOW_TRANSPORTS = 4,
    SHOW_ROFF = 8,
    SHOW_VERSION = 16,
    SHOW_USAGE = 32,
    SHOW_JSON = 64,
    SHOW_WAYS = 128,
    SHOW_WAITS = 256,
    SHOW_ALL = SHOW_LIBRARY | SHOW_HINTS | SHOW_TRANSPORTS
};

enum { MAX_TRANSPORTS = 32 };

static const char usage[] = "usage: epx_info [options]\n"
                            "  --hints        the hints alone\n"
                            "  --hints-roff   the hints as a list for a manual page\n"
                            "  --transports   the transports alone\n"
                            "  --ways[=SHAPE] how operations would go on GPUs that store into\n"
                            "                 each other: --ways=ranks=8,tokens=128,hidden=7168\n"
                            "  --waits=FILE   who waited for whom, as EPX_TRACE=FILE has noted\n"
                            "  --json         as JSON, for programs\n"
                            "  -V, --version  the version alone\n"
                            "  -h, --help     this text\n";

static void print_field(const char *name, const char *value)
{
    printf("  %-13s %s\n", name, value);
}

static void print_version(void)
{
    int major, minor, patch;

    EPX_Get_version(&major, &minor, &patch);
    printf("EPX %d.%d.%d\n", major, minor, patch);
}

/* Reads the first line of MPI's version alone: MPICH adds its whole configuration. */
static void read_mpi(char version[MPI_MAX_LIBRARY_VERSION_STRING])
{
    int length;

    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        strcpy(version, "unknown");
    version[strcspn(version, "\n")] = '\0';
    for (char *tab = strchr(version, '\t'); tab; tab = strchr(tab, '\t'))
        *tab = ' ';
}

static void print_library(void)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];

    read_mpi(mpi);
    print_version();
    print_field("configured", *EPX_CONFIGURE_LINE ? EPX_CONFIGURE_LINE : "without arguments");
    print_field("MPI", mpi);
    print_field("CUDA", EPX_CUDA_SUMMARY);
    print_field("NCCL", EPX_NCCL_SUMMARY);
    print_field("UCX", EPX_UCX_SUMMARY);
    if (*PACKAGE_BUGREPORT)
        print_field("report to", PACKAGE_BUGREPORT);
    if (*PACKAGE_URL)
        print_field("home", PACKAGE_URL);
}

static void format_values(const struct epx_param *param, char *text, size_t length)
{
    size_t used = 0;

    if (epx_param_is_text(param)) {
        snprintf(text, length, "a text");
        return;
    }
    if (!param->words) {
        snprintf(text, length, "%lld to %lld", (long long)param->min, (long long)param->max);
        return;
    }
    for (int i = 0; param->words[i] && used < length; i++)
        used +=
            (size_t)snprintf(text + used, length - used, "%s%s", i ? ", " : "", param->words[i]);
}

static void print_hint(const struct epx_param *param, const struct epx_params *params)
{
    char variable[64], values[256], now[64];
    const char *setting;

    epx_param_variable(param, variable, sizeof(variable));
    format_values(param, values, sizeof(values));
    epx_param_format(param, params, now, sizeof(now));
    setting = getenv(variable);
    printf("  %s\n    %s\n", param->name, param->help);
    printf("    %-10s %s\n", "variable", variable);
    printf("    %-10s %s\n", "values", values);
    printf("    %-10s %s\n", "default", param->default_value);
    printf("    %-10s %s%s\n", "now", now, setting && *setting ? ", by the environment" : "");
}

/* Fails, having said why, if the environment sets a hint to a value that it cannot have. */
static int print_hints(void)
{
    struct epx_params params;

    EPX_TRY(epx_params_read(NULL, &params));
    epx_params_warn(NULL);
    printf("Hints: info keys and environment variables\n");
    for (const struct epx_param *p = epx_param_table; p->name; p++)
        print_hint(p, &params);
    return EPX_SUCCESS;
}

static void print_hints_roff(void)
{
    char variable[64], values[256];

    for (const struct epx_param *p = epx_param_table; p->name; p++) {
        epx_param_variable(p, variable, sizeof(variable));
        format_values(p, values, sizeof(values));
        printf(".TP\n\\fB%s\\fP (\\fB%s\\fP)\n%s\n", p->name, variable, p->help);
        printf("Values: %s; default: %s.\n", values, p->default_value);
    }
}

/* The transports as the ranks of the world see them. */
struct transports {
    struct epx_transport_report reports[MAX_TRANSPORTS];
    int num, ranks;
};

/* Collective over the ranks of the origin. */
static int ask_transports(const struct epx_origin *origin, struct transports *transports)
{
    while (transports->num < MAX_TRANSPORTS && transports->num < epx_transport_lines()) {
        EPX_TRY(
            epx_transport_report(origin, transports->num, &transports->reports[transports->num]));
        transports->num++;
    }
    return EPX_SUCCESS;
}

static int same_transport(const struct epx_transport_report *a,
                          const struct epx_transport_report *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->memory, b->memory) == 0;
}

/* Transports that have several ways to move rows have a report for each, one after the other: which
 * of them this is, from 1, and how many there are. */
static int way_of(const struct transports *transports, int i, int *ways)
{
    const struct epx_transport_report *reports = transports->reports;
    int first = i, end = i + 1;

    while (first > 0 && same_transport(&reports[first - 1], &reports[i]))
        first--;
    while (end < transports->num && same_transport(&reports[i], &reports[end]))
        end++;
    *ways = end - first;
    return i - first + 1;
}

static void print_transport(const struct transports *transports, int i)
{
    const struct epx_transport_report *report = &transports->reports[i];
    int ways, way = way_of(transports, i, &ways);

    printf("  %-7s %-12s %s\n    ", report->name, report->memory, report->description);
    if (ways > 1)
        printf("way %d of %d of %s, which takes the first usable one: ", way, ways, report->name);
    if (report->usable)
        puts("usable");
    else
        printf("not usable: %s\n", report->why);
}

/* The name of the transport that auto takes for a memory; NULL = none is usable. */
static const char *auto_takes(const struct transports *transports, const char *memory)
{
    for (int i = 0; i < transports->num; i++)
        if (transports->reports[i].usable && strcmp(transports->reports[i].memory, memory) == 0)
            return transports->reports[i].name;
    return NULL;
}

static void print_auto(const struct transports *transports)
{
    const char *device = auto_takes(transports, epx_memory_name(EPX_MEMORY_CUDA));
    const char *host = auto_takes(transports, epx_memory_name(EPX_MEMORY_SYSTEM));

    printf("auto takes %s for the memory of hosts, %s for the memory of GPUs\n",
           host ? host : "none", device ? device : "none");
}

static void print_transports(const struct transports *transports)
{
    printf("Transports on %d rank%s, in the order that auto tries them\n", transports->ranks,
           transports->ranks == 1 ? "" : "s");
    for (int i = 0; i < transports->num; i++)
        print_transport(transports, i);
    print_auto(transports);
}

static void write_library(struct json *json)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];

    read_mpi(mpi);
    json_text(json, "configured", EPX_CONFIGURE_LINE);
    json_text(json, "mpi", mpi);
    json_text(json, "cuda", EPX_CUDA_SUMMARY);
    json_text(json, "nccl", EPX_NCCL_SUMMARY);
    json_text(json, "ucx", EPX_UCX_SUMMARY);
}

static void write_values(struct json *json, const struct epx_param *param)
{
    if (epx_param_is_text(param)) {
        json_number(json, "most_characters", EPX_PARAM_TEXT_MAX - 1);
        return;
    }
    if (!param->words) {
        json_number(json, "min", param->min);
        json_number(json, "max", param->max);
        return;
    }
    json_open(json, "values", '[');
    for (int i = 0; param->words[i]; i++)
        json_text(json, NULL, param->words[i]);
    json_close(json, ']');
}

static void write_hint(struct json *json, const struct epx_param *param,
                       const struct epx_params *params)
{
    char variable[64], now[64];
    const char *setting;

    epx_param_variable(param, variable, sizeof(variable));
    epx_param_format(param, params, now, sizeof(now));
    setting = getenv(variable);
    json_open(json, NULL, '{');
    json_text(json, "name", param->name);
    json_text(json, "help", param->help);
    json_text(json, "variable", variable);
    write_values(json, param);
    json_text(json, "default", param->default_value);
    json_text(json, "now", now);
    json_boolean(json, "from_environment", setting && *setting);
    json_close(json, '}');
}

static void write_hints(struct json *json, const struct epx_params *params)
{
    json_open(json, "hints", '[');
    for (const struct epx_param *p = epx_param_table; p->name; p++)
        write_hint(json, p, params);
    json_close(json, ']');
}

static void write_transports(struct json *json, const struct transports *transports)
{
    json_number(json, "ranks", transports->ranks);
    json_open(json, "transports", '[');
    for (int i = 0; i < transports->num; i++) {
        const struct epx_transport_report *report = &transports->reports[i];
        int ways, way = way_of(transports, i, &ways);

        json_open(json, NULL, '{');
        json_text(json, "name", report->name);
        json_number(json, "way", way);
        json_number(json, "ways", ways);
        json_text(json, "memory", report->memory);
        json_text(json, "description", report->description);
        json_boolean(json, "usable", report->usable);
        json_text(json, "why_not", report->usable ? NULL : report->why);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_open(json, "auto", '{');
    for (int memory = EPX_MEMORY_SYSTEM; memory <= EPX_MEMORY_CUDA; memory++) {
        const char *name = epx_memory_name((enum epx_memory_kind)memory);

        json_text(json, name, auto_takes(transports, name));
    }
    json_close(json, '}');
}

/* Writes nothing, and fails, if the environment sets a hint to a value that it cannot have. */
static int write_json(int show, const struct transports *transports)
{
    char version[32];
    int major, minor, patch;
    struct json json = {.file = stdout};
    struct epx_params params;

    if (show & SHOW_HINTS)
        EPX_TRY(epx_params_read(NULL, &params));
    EPX_Get_version(&major, &minor, &patch);
    snprintf(version, sizeof(version), "%d.%d.%d", major, minor, patch);
    json_open(&json, NULL, '{');
    json_text(&json, "version", version);
    if (show & SHOW_LIBRARY)
        write_library(&json);
    if (show & SHOW_HINTS)
        write_hints(&json, &params);
    if (show & SHOW_TRANSPORTS)
        write_transports(&json, transports);
    json_close(&json, '}');
    return EPX_SUCCESS;
}

/* Whether this rank speaks for all before it has met the others: launchers set one of these
 * variables. */
static int is_first(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                            "SLURM_PROCID"};
    const char *rank = by_address_is_wanted() ? getenv("RANK") : NULL;

    for (size_t i = 0; !rank && i < sizeof(variables) / sizeof(*variables); i++)
        rank = getenv(variables[i]);
    return !rank || atoi(rank) == 0;
}

/* The shape of --ways, NULL = it has none; the file of --waits. */
static const char *shape, *waits_file;

static int parse_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"hints", no_argument, NULL, SHOW_HINTS},
        {"hints-roff", no_argument, NULL, SHOW_ROFF},
        {"transports", no_argument, NULL, SHOW_TRANSPORTS},
        {"ways", optional_argument, NULL, SHOW_WAYS},
        {"waits", required_argument, NULL, SHOW_WAITS},
        {"json", no_argument, NULL, SHOW_JSON},
        {"version", no_argument, NULL, SHOW_VERSION},
        {"help", no_argument, NULL, SHOW_USAGE},
        {NULL, 0, NULL, 0},
    };
    int show = 0, option;

    opterr = is_first();
    while ((option = getopt_long(argc, argv, "hV", options, NULL)) != -1) {
        if (option == '?') {
            if (opterr)
                option_say_meant("epx_info", argv[optind - 1], options);
            return -1;
        }
        shape = option == SHOW_WAYS ? optarg : shape;
        waits_file = option == SHOW_WAITS ? optarg : waits_file;
        show |= option == 'h' ? SHOW_USAGE : option == 'V' ? SHOW_VERSION : option;
    }
    if (optind < argc) {
        if (opterr)
            fprintf(stderr, "epx_info: unexpected argument %s\n", argv[optind]);
        return -1;
    }
    return show & ~SHOW_JSON ? show : show | SHOW_ALL;
}

/* Prints what needs no MPI, so that it works without the launcher and daemon of MPI. */
static int print_without_mpi(int show)
{
    if (!is_first())
        return EXIT_SUCCESS;
    if (show & SHOW_USAGE)
        fputs(usage, stdout);
    else if (show & SHOW_WAYS)
        return info_print_ways(shape) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    else if (show & SHOW_WAITS)
        return info_waits(waits_file) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    else if (show & SHOW_JSON)
        return write_json(show, NULL) == EPX_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
    else if (show & SHOW_VERSION)
        print_version();
    else if (show & SHOW_ROFF)
        print_hints_roff();
    else if (print_hints() != EPX_SUCCESS)
        return EXIT_FAILURE;
    return EXIT_SUCCESS;
}

static int print_all(int show, const struct transports *transports)
{
    int rc = EPX_SUCCESS;

    if (show & SHOW_JSON)
        return write_json(show, transports);
    if (show & SHOW_LIBRARY) {
        print_library();
        putchar('\n');
    }
    if (show & SHOW_HINTS) {
        rc = print_hints();
        putchar('\n');
    }
    print_transports(transports);
    return rc;
}

/* Ranks that mpiexec started. */
static int print_with_mpi(int show, int *argc, char ***argv)
{
    const struct epx_origin origin = {.comm = MPI_COMM_WORLD};
    struct transports transports = {.num = 0};
    int rank, rc;

    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &transports.ranks);
    rc = ask_transports(&origin, &transports);
    if (rc == EPX_SUCCESS && rank == 0)
        rc = print_all(show, &transports);
    MPI_Finalize();
    return rc == EPX_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Ranks that torchrun started, or who sets its variables. */
static int print_by_address(int show)
{
    struct by_address *ranks = by_address_open("epx_info");
    struct epx_contact_group group = {.allgather = by_address_allgather, .arg = ranks};
    const struct epx_origin origin = {.group = &group};
    struct transports transports = {.num = 0};
    int rc;

    if (!ranks)
        return EXIT_FAILURE;
    group.rank = by_address_rank(ranks);
    group.size = transports.ranks = by_address_size(ranks);
    rc = ask_transports(&origin, &transports);
    if (rc == EPX_SUCCESS && group.rank == 0)
        rc = print_all(show, &transports);
    by_address_close(ranks);
    return rc == EPX_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    int show = parse_options(argc, argv);

    if (show < 0 && !is_first()) /* whose failure could end rank 0 before it has said why */
        return EXIT_SUCCESS;
    if (show < 0) {
        fputs(usage, stderr);
        return 2;
    }
    if (show & SHOW_TRANSPORTS && by_address_is_wanted())
        return print_by_address(show);
    if (show & SHOW_TRANSPORTS)
        return print_with_mpi(show, &argc, &argv);
    return print_without_mpi(show);
}

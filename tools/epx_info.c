/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_info.c - prints what the library is: version, build, hints, and which transports the ranks
 * of this job could use. Under mpiexec rank 0 prints for all ranks.
 */
#include "config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "coll/attach.h"
#include "epx.h"

enum {
    SHOW_LIBRARY = 1,
    SHOW_HINTS = 2,
    SHOW_TRANSPORTS = 4,
    SHOW_ROFF = 8,
    SHOW_VERSION = 16,
    SHOW_USAGE = 32,
    SHOW_ALL = SHOW_LIBRARY | SHOW_HINTS | SHOW_TRANSPORTS
};

static const char usage[] = "usage: epx_info [option]\n"
                            "  --hints        the hints alone\n"
                            "  --hints-roff   the hints as a list for a manual page\n"
                            "  --transports   the transports alone\n"
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

/* Prints the first line of MPI's version alone: MPICH adds its whole configuration. */
static void print_mpi(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;

    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS)
        return;
    version[strcspn(version, "\n")] = '\0';
    for (char *tab = strchr(version, '\t'); tab; tab = strchr(tab, '\t'))
        *tab = ' ';
    print_field("MPI", version);
}

static void print_library(void)
{
    print_version();
    print_field("configured", *EPX_CONFIGURE_LINE ? EPX_CONFIGURE_LINE : "without arguments");
    print_mpi();
    print_field("CUDA", EPX_CUDA_SUMMARY);
    print_field("NCCL", EPX_NCCL_SUMMARY);
    print_field("UCX", EPX_UCX_SUMMARY);
}

static void format_values(const struct epx_param *param, char *text, size_t length)
{
    size_t used = 0;

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

    EPX_TRY(epx_params_read(MPI_INFO_NULL, &params));
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

/* Collective over the world: every rank asks, rank 0 prints. */
static void print_transports(int rank)
{
    struct epx_transport_report report;
    int size;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        printf("Transports on %d rank%s, in the order that auto tries them\n", size,
               size == 1 ? "" : "s");
    for (int i = 0; epx_transport_report(MPI_COMM_WORLD, i, &report) == EPX_SUCCESS; i++) {
        if (rank)
            continue;
        printf("  %-7s %-12s %s\n", report.name, report.memory, report.description);
        if (report.usable)
            printf("    usable\n");
        else
            printf("    not usable: %s\n", report.why);
    }
}

static int parse_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"hints", no_argument, NULL, SHOW_HINTS},
        {"hints-roff", no_argument, NULL, SHOW_ROFF},
        {"transports", no_argument, NULL, SHOW_TRANSPORTS},
        {"version", no_argument, NULL, SHOW_VERSION},
        {"help", no_argument, NULL, SHOW_USAGE},
        {NULL, 0, NULL, 0},
    };
    int show = 0, option;

    while ((option = getopt_long(argc, argv, "hV", options, NULL)) != -1) {
        if (option == '?')
            return -1;
        show |= option == 'h' ? SHOW_USAGE : option == 'V' ? SHOW_VERSION : option;
    }
    if (optind < argc) {
        fprintf(stderr, "epx_info: unexpected argument %s\n", argv[optind]);
        return -1;
    }
    return show ? show : SHOW_ALL;
}

/* Prints what needs no MPI, so that it works without the launcher and daemon of MPI. */
static int print_without_mpi(int show)
{
    if (show & SHOW_USAGE)
        fputs(usage, stdout);
    else if (show & SHOW_VERSION)
        print_version();
    else if (show & SHOW_ROFF)
        print_hints_roff();
    else if (print_hints() != EPX_SUCCESS)
        return EXIT_FAILURE;
    return EXIT_SUCCESS;
}

static int print_with_mpi(int show, int *argc, char ***argv)
{
    int rank, rc = EPX_SUCCESS;

    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && show & SHOW_LIBRARY) {
        print_library();
        putchar('\n');
    }
    if (rank == 0 && show & SHOW_HINTS) {
        rc = print_hints();
        putchar('\n');
    }
    if (show & SHOW_TRANSPORTS)
        print_transports(rank);
    MPI_Finalize();
    return rc == EPX_SUCCESS ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    int show = parse_options(argc, argv);

    if (show < 0) {
        fputs(usage, stderr);
        return 2;
    }
    if (show & SHOW_TRANSPORTS)
        return print_with_mpi(show, &argc, &argv);
    return print_without_mpi(show);
}

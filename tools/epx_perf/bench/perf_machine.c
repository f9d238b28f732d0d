/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_machine.c - what the run is measured on: nodes, CPUs that the ranks may use, processor. */
#define _GNU_SOURCE
#include "epx_perf/bench/perf_machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/machine_key.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

/* Where a rank is, and the CPUs that it may run on. */
struct place {
    int64_t node;
    cpu_set_t cpus;
};

static struct place find_place(void)
{
    struct place place = {.node = 0};
    struct utsname name = {.nodename = ""};

    uname(&name);
    place.node = epx_machine_key(name.nodename);
    CPU_ZERO(&place.cpus);
    if (sched_getaffinity(0, sizeof(place.cpus), &place.cpus))
        for (long i = 0; i < sysconf(_SC_NPROCESSORS_ONLN) && i < CPU_SETSIZE; i++)
            CPU_SET((size_t)i, &place.cpus);
    return place;
}

/* Counts the ranks of a rank's node and the CPUs that at least one of them may run on. Returns
 * whether the rank is the first one of the node. */
static int look_at_node(const struct place *places, int rank, int *ranks, int *cpus)
{
    cpu_set_t any;
    int first = -1;

    CPU_ZERO(&any);
    *ranks = 0;
    for (int r = 0; r < ranks_num(); r++)
        if (places[r].node == places[rank].node) {
            first = first < 0 ? r : first;
            CPU_OR(&any, &any, &places[r].cpus);
            ++*ranks;
        }
    *cpus = CPU_COUNT(&any);
    return first == rank;
}

static void read_nodes(struct perf_machine *machine)
{
    struct place own = find_place(), *places = perf_alloc(ranks_num(), sizeof(*places));
    int ranks, cpus;

    ranks_allgather(&own, places, sizeof(own));
    for (int r = 0; r < ranks_num(); r++) {
        if (!look_at_node(places, r, &ranks, &cpus))
            continue;
        if (!machine->nodes++ || (double)ranks / cpus > (double)machine->ranks / machine->cpus) {
            machine->ranks = ranks;
            machine->cpus = cpus;
        }
    }
    free(places);
}

/* Copies what follows the colon of a line of /proc/cpuinfo; 0 if the line has another name. */
static int copy_model(const char *line, struct perf_machine *machine)
{
    const char *value = strchr(line, ':');

    if (strncmp(line, "model name", 10) != 0 || !value)
        return 0;
    value += 1 + strspn(value + 1, " \t");
    snprintf(machine->processor, sizeof(machine->processor), "%.*s", (int)strcspn(value, "\n"),
             value);
    return 1;
}

static void read_processor(struct perf_machine *machine)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    struct utsname name;
    char line[256];
    int found = 0;

    while (file && !found && fgets(line, sizeof(line), file))
        found = copy_model(line, machine);
    if (file)
        fclose(file);
    if (!found && uname(&name) == 0)
        snprintf(machine->processor, sizeof(machine->processor), "%.100s", name.machine);
}

void perf_machine_read(struct perf_machine *machine)
{
    memset(machine, 0, sizeof(*machine));
    read_nodes(machine);
    read_processor(machine);
    ranks_bcast(machine->processor, sizeof(machine->processor));
}

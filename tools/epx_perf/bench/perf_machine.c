/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_machine.c - what the run is measured on: nodes, CPUs that the ranks may use, processor. */
#define _GNU_SOURCE
#include "epx_perf/bench/perf_machine.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* CPUs that at least one rank of a node may run on. */
static int count_cpus(MPI_Comm node)
{
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof(cpus), &cpus))
        for (long i = 0; i < sysconf(_SC_NPROCESSORS_ONLN) && i < CPU_SETSIZE; i++)
            CPU_SET((size_t)i, &cpus);
    MPI_Allreduce(MPI_IN_PLACE, &cpus, (int)sizeof(cpus), MPI_BYTE, MPI_BOR, node);
    return CPU_COUNT(&cpus);
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

void perf_machine_read(MPI_Comm comm, struct perf_machine *machine)
{
    struct {
        double crowding;
        int rank;
    } most;
    MPI_Comm node;
    int rank, leader;

    memset(machine, 0, sizeof(*machine));
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &machine->ranks);
    MPI_Comm_rank(node, &leader);
    leader = leader == 0;
    MPI_Allreduce(&leader, &machine->nodes, 1, MPI_INT, MPI_SUM, comm);
    machine->cpus = count_cpus(node);
    MPI_Comm_free(&node);
    most.crowding = (double)machine->ranks / machine->cpus;
    most.rank = rank;
    MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
    MPI_Bcast(&machine->ranks, 1, MPI_INT, most.rank, comm);
    MPI_Bcast(&machine->cpus, 1, MPI_INT, most.rank, comm);
    if (rank == 0)
        read_processor(machine);
    MPI_Bcast(machine->processor, (int)sizeof(machine->processor), MPI_CHAR, 0, comm);
}

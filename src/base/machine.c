/* SPDX-License-Identifier: BSD-3-Clause */
/* machine.c - how much memory there is: that of the machine, and the limits of control groups;
 * how long a file may be, and which CPUs this process may use. */
#define _GNU_SOURCE
#include "base/machine.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number in a file; UINT64_MAX if there is none, as in "max". */
static uint64_t number_in(const char *path)
{
    FILE *file = fopen(path, "r");
    unsigned long long number;
    int found;

    if (!file)
        return UINT64_MAX;
    found = fscanf(file, "%llu", &number);
    fclose(file);
    return found == 1 ? number : UINT64_MAX;
}

/* The least limit of a group and of all groups above it. In a container the path may be that of
 * the host: then the folders on the way are not there, and the topmost one is the container's. */
static uint64_t limit_of(const char *mounted, const char *hierarchy, char *path, const char *name)
{
    uint64_t limit = UINT64_MAX;
    char file[2 * PATH_MAX], *slash = path + strlen(path);

    for (; slash; slash = strrchr(path, '/')) {
        *slash = '\0';
        if (snprintf(file, sizeof(file), "%s%s%s/%s", mounted, hierarchy, path, name) <
            (int)sizeof(file))
            limit = least(limit, number_in(file));
    }
    return limit;
}

uint64_t epx_machine_group_limit(const char *groups, const char *mounted)
{
    FILE *file = fopen(groups, "r");
    uint64_t limit = UINT64_MAX;
    char line[PATH_MAX], *path;

    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        path = strchr(line, '/');
        if (path && strncmp(line, "0::", 3) == 0)
            limit = least(limit, limit_of(mounted, "", path, "memory.max"));
        else if (path && strstr(line, ":memory:"))
            limit = least(limit, limit_of(mounted, "/memory", path, "memory.limit_in_bytes"));
    }
    if (file)
        fclose(file);
    return limit;
}

uint64_t epx_machine_memory(void)
{
    static _Atomic uint64_t known;
    struct sysinfo machine;
    uint64_t bytes = atomic_load(&known);

    if (bytes)
        return bytes;
    bytes = epx_machine_group_limit("/proc/self/cgroup", "/sys/fs/cgroup");
    if (sysinfo(&machine) == 0)
        bytes = least(bytes, ((uint64_t)machine.totalram + machine.totalswap) * machine.mem_unit);
    atomic_store(&known, bytes);
    return bytes;
}

uint64_t epx_machine_file_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}

int64_t epx_machine_cpus(void)
{
    cpu_set_t cpus;
    uint64_t which = 0;
    long num = sysconf(_SC_NPROCESSORS_ONLN);

    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
        num = CPU_COUNT(&cpus);
        for (size_t i = 0; i < CPU_SETSIZE; i++)
            which = (which ^ (uint64_t) !!CPU_ISSET(i, &cpus)) * 0x9e3779b97f4a7c15 + (which >> 32);
    }
    num = num < 1 ? 1 : num > EPX_MACHINE_MOST_CPUS ? EPX_MACHINE_MOST_CPUS : num;
    return (int64_t)((which & 0x7fffffff) << 16 | (uint64_t)num);
}

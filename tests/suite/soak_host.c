/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak_host.c - soak on host memory: over several transports at once; every block that the library
 * allocates is counted.
 */
#include <stdio.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "suite/soak.h"
#include "support/suite.h"

enum { SLACK_KIB = 8192 };

struct party parties[] = {
    {.transport = "shm", .progress = "calls", .window_bytes = "4194304", .color = everybody},
    {.transport = "mpi", .progress = "calls", .window_bytes = "65536", .color = everybody},
    {.transport = "shm", .progress = "calls", .window_bytes = "65536", .color = halves},
    {.transport = "mpi", .progress = "calls", .window_bytes = "4194304", .color = parity},
    {.transport = "shm", .progress = "thread", .window_bytes = "65536", .color = all_but_last},
    {.transport = "auto",
     .progress = "calls",
     .window_bytes = "65536",
     .ranks_per_node = 2,
     .color = everybody},
};
const int num_parties = sizeof(parties) / sizeof(parties[0]), usual_steps = 300;

int max_sms_of(int num_comms)
{
    (void)num_comms;
    return 0;
}

static int64_t resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return (int64_t)resident * sysconf(_SC_PAGESIZE) / 1024;
}

void look_note(struct look *look)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    look->allocation = allocation_now();
    look->kib = resident_kib();
}

void look_compare(const struct look *warm)
{
    struct allocation since = allocation_since(&warm->allocation);
    struct look now;
    int64_t grown;

    look_note(&now);
    grown = most_of_all(now.kib - warm->kib);
    EXPECT(since.live_blocks == 0 && since.live_bytes == 0, "%lld blocks, %lld bytes more",
           (long long)since.live_blocks, (long long)since.live_bytes);
    EXPECT(since.mapped_bytes == 0, "%lld bytes more mapped", (long long)since.mapped_bytes);
    EXPECT(grown <= SLACK_KIB, "%lld KiB more resident than when warm", (long long)grown);
}

const char *look_text(const struct look *warm)
{
    static char text[128];

    snprintf(text, sizeof(text), "resident %lld KiB when warm, %lld KiB at the end",
             (long long)most_of_all(warm->kib), (long long)most_of_all(resident_kib()));
    return text;
}

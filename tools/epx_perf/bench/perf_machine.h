/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_machine.h - what the run is measured on. */
#ifndef EPX_PERF_MACHINE_H
#define EPX_PERF_MACHINE_H

struct perf_machine {
    int nodes;
    int ranks, cpus;     /* of the node that has most ranks for each CPU that they may use */
    char processor[128]; /* of rank 0 */
};

/* Collective; the result is for all ranks. */
void perf_machine_read(struct perf_machine *machine);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * soak.h - what soak is run over: the communicators, and how the memory in use is looked at.
 * soak_host.c has those of host memory, soak_device.c those of a GPU.
 */
#ifndef SOAK_H
#define SOAK_H

#include <stdint.h>

#include "epx.h"
#include "suite/allocation.h"

/* A communicator of this rank, and its ranks as the tests' modules see them. */
struct party {
    const char *transport, *progress; /* NULL = as the environment says */
    const char *window_bytes;
    int ranks_per_node; /* 0 = as the environment says */
    int (*color)(int rank, int size);
    EPX_Comm comm;
    int rank, size;
    int *nodes;
};

extern struct party parties[];
extern const int num_parties, usual_steps;

int everybody(int rank, int size);
int halves(int rank, int size);
int parity(int rank, int size);
int all_but_last(int rank, int size);

struct look {
    struct allocation allocation; /* on the host */
    int64_t kib;                  /* resident; in use on the GPU */
};

/* Collective: look_note notes what is in use; look_compare expects as much, or little more. */
void look_note(struct look *look);
void look_compare(const struct look *warm);
/* Collective: what was noted and what is in use now, as text in static memory. */
const char *look_text(const struct look *warm);

/* The hint epx_max_sms with which so many communicators fit the GPU at once; 0 on the host. */
int max_sms_of(int num_comms);

/* Collective: the largest value of all ranks. */
int64_t most_of_all(int64_t value);

#endif

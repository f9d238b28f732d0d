/* SPDX-License-Identifier: BSD-3-Clause */
/* process.h - which process a rank is, and whether it has ended. */
#ifndef EPX_TRANSPORT_CUDA_LOST_PROCESS_H
#define EPX_TRANSPORT_CUDA_LOST_PROCESS_H

#include <stdint.h>

/* Zeroed, it is a process of which nothing is known. */
struct epx_process {
    int64_t id;
    int64_t started; /* as the kernel counts: ids are used again, the two together are not */
    int64_t space;   /* the namespace that the id is of */
};

void epx_process_self(struct epx_process *process);
/* Whether a process of this machine is known to have ended: all its threads, so that its files, and
 * with these what it has of GPUs, are closed. 0 as well for one in another namespace. */
int epx_process_is_gone(const struct epx_process *process);

#endif

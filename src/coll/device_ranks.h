/* SPDX-License-Identifier: BSD-3-Clause */
/* device_ranks.h - the GPUs of a communicator's ranks, and whether kernels run on them. */
#ifndef EPX_COLL_DEVICE_RANKS_H
#define EPX_COLL_DEVICE_RANKS_H

#include <cuda_runtime_api.h>

#include "comm.h"

/* A number that only this GPU has, not 0. */
int64_t epx_device_number(const struct cudaDeviceProp *properties);
/*
 * Collective, because only together the ranks know who shares a GPU: the numbers of all ranks'
 * current GPUs, 0 without a usable one, to be freed; or NULL and why this rank's kernels cannot
 * work here.
 */
int64_t *epx_device_numbers(struct epx_comm *comm, char *why);

#endif

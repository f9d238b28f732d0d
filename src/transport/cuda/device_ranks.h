/* SPDX-License-Identifier: BSD-3-Clause */
/* device_ranks.h - the GPUs of a communicator's ranks, and whether kernels run on them. */
#ifndef EPX_TRANSPORT_CUDA_DEVICE_RANKS_H
#define EPX_TRANSPORT_CUDA_DEVICE_RANKS_H

#include <cuda_runtime_api.h>

#include "core/comm.h"

/* A number that only this GPU has, not 0. */
int64_t epx_device_number(const struct cudaDeviceProp *properties);
/*
 * Collective, because only together the ranks know who shares a GPU: the numbers of all ranks'
 * current GPUs, 0 without a usable one, to be freed; or NULL and why this rank's kernels cannot
 * work here.
 */
int64_t *epx_device_numbers(struct epx_comm *comm, char *why);

/* Of the ranks, numbered as above; if not, why. For kernels that reach other ranks' memory: all are
 * on one node, and what this rank's GPU reaches there of those visible here it reaches by atomics,
 * which the flags need. */
int epx_device_check_nodes(const struct epx_comm *comm, char *why);
int epx_device_check_atomics(const struct epx_comm *comm, const int64_t *devices, char *why);
/* The kernels of all ranks that share this rank's GPU can wait there at once. */
int epx_device_check_room(const struct epx_comm *comm, const int64_t *devices, char *why);
/* The visible GPU that each rank has, -1 = none; ordinals is [size]. */
void epx_device_find_ordinals(const struct epx_comm *comm, const int64_t *devices, int *ordinals);

#endif

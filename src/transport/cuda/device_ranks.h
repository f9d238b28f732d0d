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

/* Whether kernels can reach the memory of other ranks; if not, why. epx_device_check_nodes: all
 * ranks are on one node. epx_device_check_atomics: this rank's GPU has atomics, which flags need,
 * on the memory of every rank whose GPU this process sees. devices is from epx_device_numbers. */
int epx_device_check_nodes(const struct epx_comm *comm, char *why);
int epx_device_check_atomics(const struct epx_comm *comm, const int64_t *devices, char *why);
/* Whether the kernels of all ranks that share this rank's GPU can wait on it at once; if not,
 * why. */
int epx_device_check_room(const struct epx_comm *comm, const int64_t *devices, char *why);
/* Collective: counts the ranks that share the current GPU of this one. */
int epx_device_count_sharers(struct epx_comm *comm, int *ranks);
/* Whether a kernel can wait for work that this rank queues behind it on another stream; if not,
 * why. */
int epx_device_check_queues(char *why);
/* The visible GPU that each rank has, -1 = none; ordinals is [size]. */
void epx_device_find_ordinals(const struct epx_comm *comm, const int64_t *devices, int *ordinals);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* scene_space.h - the memory space of the ranks of a scene: the host, or with
 * EPX_MEMORY=cuda:device the GPU of each rank. */
#ifndef TESTS_HEALTH_SCENE_SPACE_H
#define TESTS_HEALTH_SCENE_SPACE_H

#include <stddef.h>

/* Whether it is to be a GPU; -1, and why is printed, if there is none. */
int space_of_scenes(void);
/* In the process of a rank, first: takes its GPU, and has its exchanges use memory there. */
void space_take(int rank);
/* From now on the host of this rank waits for its GPU, and EPX hears nothing from it meanwhile,
 * before it waits for an exchange. */
void space_await(void);
/* Fill memory of EPX_Alloc_mem with a byte, and find the first byte that is another one; -1 = none
 * is. */
void space_fill(void *memory, int byte, size_t bytes);
long space_find_other(const void *memory, int byte, size_t bytes);
/* kB of the GPU's memory that are in use. */
long space_used_kb(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pretend_copies.h - the calls of CUDA's runtime that copy between memories, without a GPU: device
 * memory is memory, and what is queued on a stream is done some random time later.
 */
#ifndef EPX_TESTS_PRETEND_COPIES_H
#define EPX_TESTS_PRETEND_COPIES_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

/* Sets the GPU of this rank: ranks with the same number share it. */
void pretend_gpu(int number, int num_sms);
/* Sets how many GPUs are visible, numbered from 0; without this call only this rank's is. */
void pretend_visible(int num_gpus);
/* Does what is still queued on all streams. */
void pretend_drain(void);
/* Whether all of it is page-locked. */
int pretend_is_pinned(const void *start, size_t bytes);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kept_memory.h - memory of a communicator that was shrunk, which processes of the ranks that were
 * lost have mapped. CUDA cannot take it back from them: one that only stopped may still store
 * there. So it has no other owner until they have ended.
 */
#ifndef EPX_TRANSPORT_CUDA_LOST_KEPT_MEMORY_H
#define EPX_TRANSPORT_CUDA_LOST_KEPT_MEMORY_H

#include <stddef.h>

#include "transport/cuda/lost/process.h"

/* All functions are local, and may be called by any thread. */

/* Takes over memory of cudaMalloc on a device, and frees it, now or later, when these processes
 * have ended. Memory for which there is no room in the list stays until this process ends. */
void epx_kept_memory_add(int ordinal, void *memory, size_t bytes,
                         const struct epx_process *processes, int num);
/* Frees what nobody has mapped any more. */
void epx_kept_memory_free(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * space.h - the memory space that the run is about: the host, or the GPU of this rank, asked for
 * by EPX_MEMORY=cuda:device. Tests work on images in host memory and copy.
 */
#ifndef SPACE_H
#define SPACE_H

#include <stddef.h>

#include "epx.h"

/* Takes the GPU for this rank of its node; ends the program as skipped if there is none. */
void space_init(int rank_on_node);
int space_is_device(void);
/* GPUs that this process sees, whatever the run is about. */
int space_num_gpus(void);
/* Whether any ranks share a GPU; the same on all of them. */
int space_shares_gpus(void);

/* Gives another thread the same GPU. */
void space_enter_thread(void);
/* Makes a stream; EPX_STREAM_NULL on the host. */
EPX_Stream space_new_stream(void);
void space_free_stream(EPX_Stream stream);
/* Returns when what was queued on the stream, EPX_STREAM_NULL the default one, has been done. */
void space_wait_stream(EPX_Stream stream);

/* Memory of the space. */
void *space_alloc(size_t bytes);
void space_free(void *memory);
/* Memory of the space that is an allocation of its own; nothing may be in flight. */
void *space_alloc_alone(size_t bytes);
void space_free_alone(void *memory);
/* Memory of another GPU of this machine; NULL on the host, or if there is one GPU. */
void *space_alloc_elsewhere(size_t bytes);
void space_free_elsewhere(void *memory);
/* Copy to and from that memory, through a stream of their own: whatever is in flight goes on. */
void space_put(void *to, const void *image, size_t bytes);
void space_get(void *image, const void *from, size_t bytes);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_buffer.c - buffers: memory of a space or of EPX_Alloc_mem, and its image on the host. */
#include "epx_perf/space/perf_buffer.h"
#include "ranks/ranks.h"

#include <string.h>

void perf_buffer_create(struct perf_buffer *buffer, const struct perf_space *space, int64_t bytes,
                        EPX_Comm comm)
{
    perf_buffer_borrow(buffer, space, NULL, bytes);
    buffer->window = comm;
    buffer->borrowed = 0;
    if (comm)
        ranks_must(EPX_Alloc_mem((MPI_Aint)bytes, comm, &buffer->address));
    else
        buffer->address = space->alloc(bytes);
    if (bytes)
        space->fill(buffer->address, 0, bytes);
}

void perf_buffer_borrow(struct perf_buffer *buffer, const struct perf_space *space, void *memory,
                        int64_t bytes)
{
    memset(buffer, 0, sizeof(*buffer));
    buffer->space = space;
    buffer->address = memory;
    buffer->bytes = bytes;
    buffer->borrowed = 1;
}

void perf_buffer_free(struct perf_buffer *buffer)
{
    if (!buffer->space)
        return;
    if (buffer->image && buffer->space->free_image)
        buffer->space->free_image(buffer->image);
    if (buffer->window)
        ranks_must(EPX_Free_mem(buffer->address, buffer->window));
    else if (!buffer->borrowed)
        buffer->space->free(buffer->address);
    memset(buffer, 0, sizeof(*buffer));
}

void *perf_buffer_image(struct perf_buffer *buffer)
{
    const struct perf_space *space = buffer->space;

    if (!buffer->image)
        buffer->image = space->get ? space->alloc_image(buffer->bytes) : buffer->address;
    return buffer->image;
}

void perf_buffer_send(struct perf_buffer *buffer)
{
    if (buffer->space->put && buffer->bytes)
        buffer->space->put(buffer->address, buffer->image, buffer->bytes);
}

void *perf_buffer_fetch(struct perf_buffer *buffer)
{
    void *image = perf_buffer_image(buffer);

    if (buffer->space->get && buffer->bytes)
        buffer->space->get(image, buffer->address, buffer->bytes);
    return image;
}

void perf_buffer_poison(struct perf_buffer *buffer)
{
    if (buffer->bytes)
        buffer->space->fill(buffer->address, 0xa5, buffer->bytes);
}

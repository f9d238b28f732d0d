/* SPDX-License-Identifier: BSD-3-Clause */
/* buffer.c - user buffers between canaries. */
#include "support/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "support/space.h"
#include "support/suite.h"

#define GUARD ((size_t)64)

enum { PERIOD = 1024 }; /* of the canaries */

static unsigned char canary(size_t i)
{
    return (unsigned char)(0x5a ^ (i * 167 >> 2));
}

static void fill(unsigned char *bytes, size_t from, size_t n)
{
    for (size_t i = 0; i < n && i < PERIOD; i++)
        bytes[i] = canary(from + i);
    for (size_t i = PERIOD; i < n; i += PERIOD)
        memcpy(bytes + i, bytes, n - i < PERIOD ? n - i : PERIOD);
}

static void push_image(const struct buffer *buffer)
{
    if (buffer->place != buffer->block)
        space_put(buffer->place, buffer->block, buffer->block_bytes);
}

void buffer_fetch(const struct buffer *buffer)
{
    if (buffer->place != buffer->block)
        space_get(buffer->block, buffer->place, buffer->block_bytes);
}

void buffer_reset(struct buffer *buffer)
{
    fill(buffer->block, 0, buffer->block_bytes);
    fill(buffer->expected, buffer->shift, buffer->bytes);
    push_image(buffer);
}

int buffer_create(struct buffer *buffer, size_t bytes, size_t element, enum memory memory,
                  EPX_Comm comm)
{
    const int turns = memory == MEMORY_MALLOC ? 2 : 1;
    int code = EPX_SUCCESS;

    memset(buffer, 0, sizeof(*buffer));
    buffer->bytes = bytes;
    buffer->shift = GUARD + element * (size_t)(turns * suite_rank % 3);
    buffer->block_bytes = buffer->shift + bytes + GUARD;
    if (memory != MEMORY_MALLOC) {
        buffer->comm = comm;
        code = EPX_Alloc_mem((MPI_Aint)buffer->block_bytes, comm, &buffer->window);
    }
    if (!EXPECT_CODE(code, EPX_SUCCESS))
        return code;
    if (buffer->window && !(memory == MEMORY_MIXED && suite_rank % 2))
        buffer->place = buffer->window;
    else
        buffer->place = space_alloc(buffer->block_bytes);
    buffer->block = space_is_device() ? malloc(buffer->block_bytes) : buffer->place;
    buffer->address = buffer->place + buffer->shift;
    buffer->data = buffer->block + buffer->shift;
    buffer->expected = malloc(bytes + 1);
    buffer_reset(buffer);
    return EPX_SUCCESS;
}

void buffer_freeze(struct buffer *buffer)
{
    if (!buffer->data)
        return;
    memcpy(buffer->expected, buffer->data, buffer->bytes);
    push_image(buffer);
}

static int canaries_intact(const struct buffer *buffer, size_t from, size_t to)
{
    while (from < to && buffer->block[from] == canary(from))
        from++;
    return from == to;
}

static int guards_intact(const struct buffer *buffer)
{
    return canaries_intact(buffer, 0, buffer->shift) &&
           canaries_intact(buffer, buffer->shift + buffer->bytes, buffer->block_bytes);
}

int buffer_check(const struct buffer *buffer, const char *what)
{
    const unsigned char *got = buffer->data, *want = buffer->expected;
    size_t i = 0;

    if (!buffer->data)
        return 1;
    buffer_fetch(buffer);
    if (memcmp(got, want, buffer->bytes) != 0)
        while (got[i] == want[i])
            i++;
    else
        i = buffer->bytes;
    return EXPECT(i == buffer->bytes, "%s: byte %zu of %zu is %02x, not %02x", what, i,
                  buffer->bytes, got[i], want[i]) &
           EXPECT(guards_intact(buffer), "%s: written outside its %zu bytes", what, buffer->bytes);
}

void buffer_free(struct buffer *buffer)
{
    if (buffer->block != buffer->place)
        free(buffer->block);
    if (buffer->place && buffer->place != buffer->window)
        space_free(buffer->place);
    free(buffer->expected);
    if (buffer->comm)
        EXPECT_CODE(EPX_Free_mem(buffer->window, buffer->comm), EPX_SUCCESS);
    memset(buffer, 0, sizeof(*buffer));
}

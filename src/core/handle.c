/* SPDX-License-Identifier: BSD-3-Clause */
/* handle.c - a hash table of the handles that the user holds, and a list of those freed last. */
#include "core/handle.h"

#include <stdatomic.h>
#include <string.h>

#include "core/lock.h"

enum { NUM_BUCKETS = 1024, FREED_KEPT = 256 };

static struct epx_handle *buckets[NUM_BUCKETS]; /* under the lock */
static const void *freed[FREED_KEPT];           /* under the lock; a ring */
static unsigned num_freed;
static atomic_int generation;

static const struct {
    const char *argument, *what, *null;
    int error;
} kinds[EPX_NUM_HANDLES] = {
    [EPX_HANDLE_COMM] = {"comm", "a communicator", "EPX_COMM_NULL", EPX_ERR_COMM},
    [EPX_HANDLE_ROUTE] = {"route", "a route", "EPX_ROUTE_NULL", EPX_ERR_ROUTE},
    [EPX_HANDLE_REQUEST] = {"request", "a request", "EPX_REQUEST_NULL", EPX_ERR_REQUEST},
    [EPX_HANDLE_GRAPH] = {"graph", "a graph", "EPX_GRAPH_NULL", EPX_ERR_ARG},
};

/* Objects lie at least 64 bytes apart. */
static struct epx_handle **bucket_of(const void *handle)
{
    uintptr_t value = (uintptr_t)handle >> 6;

    return &buckets[(value ^ value >> 10) % NUM_BUCKETS];
}

/* The link that points to the handle; at the end of its bucket one that points to nothing. */
static struct epx_handle **find(const void *handle)
{
    struct epx_handle **link = bucket_of(handle);

    while (*link && *link != handle)
        link = &(*link)->next;
    return link;
}

void epx_handle_add(struct epx_handle *handle, enum epx_handle_kind kind)
{
    struct epx_handle **first = bucket_of(handle);

    epx_lock();
    handle->kind = kind;
    handle->held = 1;
    handle->next = *first;
    *first = handle;
    epx_unlock();
}

void epx_handle_remove(struct epx_handle *handle)
{
    epx_lock();
    if (handle->held) {
        *find(handle) = handle->next;
        freed[num_freed++ % FREED_KEPT] = handle;
        handle->held = 0;
    }
    epx_unlock();
}

void epx_handle_forget_all(void)
{
    memset(buckets, 0, sizeof(buckets));
    memset(freed, 0, sizeof(freed));
    generation++;
}

int epx_handle_generation(void)
{
    return generation;
}

/* The kind of a handle that the user may name; EPX_NUM_HANDLES for any other value. */
static enum epx_handle_kind kind_of(const void *handle)
{
    const struct epx_handle *found;
    enum epx_handle_kind kind;

    epx_lock();
    found = *find(handle);
    kind = found ? found->kind : EPX_NUM_HANDLES;
    epx_unlock();
    return kind;
}

static int was_freed(const void *handle)
{
    int found = 0;

    epx_lock();
    for (int i = 0; i < FREED_KEPT; i++)
        found |= freed[i] == handle;
    epx_unlock();
    return found;
}

int epx_handle_is(const void *handle, enum epx_handle_kind kind)
{
    return handle && kind_of(handle) == kind;
}

int epx_handle_fail(const void *handle, enum epx_handle_kind kind)
{
    const char *argument = kinds[kind].argument;
    enum epx_handle_kind other;

    EPX_FAIL_IF(!handle, kinds[kind].error, "%s is %s", argument, kinds[kind].null);
    other = kind_of(handle);
    EPX_FAIL_IF(other < EPX_NUM_HANDLES, kinds[kind].error, "%s is %s, want %s", argument,
                kinds[other].what, kinds[kind].what);
    EPX_FAIL_IF(was_freed(handle), kinds[kind].error, "%s %p was freed", argument, handle);
    EPX_FAIL_IF(
        generation, kinds[kind].error,
        "%s %p is not %s of this process, which was forked off: its parent's are not its own",
        argument, handle, kinds[kind].what);
    return epx_fail(kinds[kind].error, "%s %p is not %s: EPX gave no such handle", argument, handle,
                    kinds[kind].what);
}

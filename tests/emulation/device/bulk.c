/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bulk.c - bulk copies that are under way. Each is made as late as may be: a load when a thread
 * finds out that its phase has ended, a store when its thread waits until it has read, or until it
 * is in memory. Every other group of a thread's copies ahead is made as late too, the rest at once.
 * So a kernel that forgets a wait goes wrong. The copying is the kernel's own code, in
 * emulated_ptx.h, which checks.c looks at.
 */
#include "emulation/device/bulk.h"

#include <stdlib.h>
#include <string.h>

struct bulk {
    struct emulated_copy copy;
    uint64_t *barrier; /* of a load */
    unsigned group;    /* of a store */
    char *read;        /* of a store: what it has read; NULL = nothing yet */
    int made;          /* of a store: a kernel makes it */
    struct bulk *next;
};

static struct bulk *loads;

static struct bulk *new_bulk(struct emulated_copy copy)
{
    struct bulk *bulk = calloc(1, sizeof(*bulk));

    if (!bulk)
        abort();
    if (((uintptr_t)copy.to | (uintptr_t)copy.from | copy.bytes) & 15 || copy.bytes == 0)
        threads_refuse(threads_here()->block, "a bulk copy that is not aligned to 16 bytes");
    bulk->copy = copy;
    return bulk;
}

void emulated_bulk_load(struct emulated_copy copy, uint64_t *barrier)
{
    struct bulk **end = &loads;

    while (*end)
        end = &(*end)->next;
    *end = new_bulk(copy);
    (*end)->barrier = barrier;
}

int emulated_bulk_take_load(const uint64_t *barrier, struct emulated_copy *copy)
{
    struct bulk **link = &loads, *load;

    while (*link && (*link)->barrier != barrier)
        link = &(*link)->next;
    load = *link;
    if (!load)
        return 0;
    *copy = load->copy;
    *link = load->next;
    free(load);
    return 1;
}

/* A kernel may leave thousands of stores under way until its end: no step goes through all. */
void emulated_bulk_store(struct emulated_copy copy)
{
    struct thread *thread = threads_here();
    struct bulk *store = new_bulk(copy);

    store->group = thread->groups;
    if (thread->stores)
        thread->last_store->next = store;
    else
        thread->stores = store;
    thread->last_store = store;
    if (!thread->unread)
        thread->unread = store;
}

void emulated_bulk_end_group(void)
{
    threads_here()->groups++;
}

/* Whether a store is in a group that all but the last `pending` groups have. */
static int is_due(const struct thread *thread, const struct bulk *store, unsigned pending)
{
    return thread->groups - store->group > pending;
}

int emulated_bulk_take_read(unsigned pending, struct emulated_copy *copy)
{
    struct thread *thread = threads_here();
    struct bulk *store = thread->unread;

    if (!store || !is_due(thread, store, pending))
        return 0;
    store->read = malloc(store->copy.bytes);
    if (!store->read)
        abort();
    thread->unread = store->next;
    *copy = (struct emulated_copy){store->read, store->copy.from, store->copy.bytes};
    return 1;
}

/* Another thread may run while a kernel makes the copy: so its memory stays until the next call. */
static void free_made(struct thread *thread)
{
    struct bulk *store = thread->stores;

    if (!store || !store->made)
        return;
    thread->stores = store->next;
    free(store->read);
    free(store);
}

int emulated_bulk_take_store(unsigned pending, struct emulated_copy *copy)
{
    struct thread *thread = threads_here();
    struct bulk *store;

    free_made(thread);
    store = thread->stores;
    if (!store || !is_due(thread, store, pending))
        return 0;
    *copy = (struct emulated_copy){store->copy.to, store->read, store->copy.bytes};
    store->made = 1;
    return 1;
}

static int is_shared(const struct block *block, const void *address)
{
    return (const char *)address >= block->shared &&
           (const char *)address < block->shared + MOST_SHARED_BYTES;
}

int emulated_ahead_copy(struct emulated_copy copy)
{
    struct thread *thread = threads_here();
    const uintptr_t addresses = (uintptr_t)copy.to | (uintptr_t)copy.from;

    if (addresses & (copy.bytes - 1) || !is_shared(thread->block, copy.to))
        threads_refuse(thread->block, "a copy ahead that is not aligned, or not into the block");
    if (((unsigned)thread->place.thread.x + thread->ahead_groups) & 1)
        return 0;
    if (thread->num_ahead == MOST_AHEAD)
        threads_refuse(thread->block, "more copies ahead than the emulation keeps");
    thread->ahead[thread->num_ahead++] = (struct ahead){copy, thread->ahead_groups};
    return 1;
}

void emulated_ahead_end_group(void)
{
    threads_here()->ahead_groups++;
}

int emulated_ahead_take(unsigned pending, struct emulated_copy *copy)
{
    struct thread *thread = threads_here();

    if (!thread->num_ahead || thread->ahead_groups - thread->ahead[0].group <= pending)
        return 0;
    *copy = thread->ahead[0].copy;
    thread->num_ahead--;
    memmove(thread->ahead, thread->ahead + 1, (size_t)thread->num_ahead * sizeof(*thread->ahead));
    return 1;
}

void emulated_check_quad(const void *address)
{
    const struct block *block = threads_here()->block;

    if ((uintptr_t)address & 15 || is_shared(block, address))
        threads_refuse(block, "a store of 16 bytes that is not aligned, or into the block");
}

void bulk_end_thread(struct thread *thread)
{
    if (thread->num_ahead)
        threads_refuse(thread->block, "a thread ends before its copies ahead");
    free_made(thread);
    while (thread->stores) {
        struct bulk *store = thread->stores;

        if (!store->read)
            threads_refuse(thread->block, "a thread ends before its bulk stores have read");
        memcpy(store->copy.to, store->read, store->copy.bytes);
        thread->stores = store->next;
        free(store->read);
        free(store);
    }
}

void bulk_end_block(const struct block *block)
{
    for (const struct bulk *load = loads; load; load = load->next)
        if (is_shared(block, load->barrier))
            threads_refuse(block, "a block ends before its bulk loads");
}

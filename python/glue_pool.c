/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_pool.c - arenas on device memory as the ground of torch's pools: the functions that
 * torch.cuda.memory.CUDAPluggableAllocator wants.
 *
 * torch's allocator calls them when a pool needs a further segment, in any thread, with its own
 * lock held, maybe within a capture. It tells the device, but not whose pool it is: so each
 * communicator has a function of its own, of which there are NUM_POOLS. Where no arena has room
 * they give ordinary device memory, which EPX fills through its stages: the bytes are the same.
 */
#include "glue_cuda.h"

#include <pthread.h>

enum { NUM_POOLS = 16, CAPTURE_MODE_RELAXED = 2 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int64_t owners[NUM_POOLS]; /* the communicator's number plus 1; 0 = nobody's */

/* Makes a device's context current, which torch uses too, and lets memory be had in a capture. */
static int enter(int ordinal, int *device, int *mode)
{
    *mode = CAPTURE_MODE_RELAXED;
    if (epx_python_device_choose(ordinal, device) != EPX_SUCCESS)
        return 0;
    epx_python_cuda()->exchange_mode(mode);
    return 1;
}

static void leave(int device, int *mode)
{
    epx_python_cuda()->exchange_mode(mode);
    epx_python_device_leave(device);
}

static void *ordinary_allocate(size_t bytes, int ordinal)
{
    uint64_t memory = 0;
    int device, mode;

    if (!enter(ordinal, &device, &mode))
        return NULL;
    if (epx_python_cuda()->allocate(&memory, bytes) != 0)
        memory = 0;
    leave(device, &mode);
    return (void *)(uintptr_t)memory;
}

/* Waits for the GPU, as cudaFree does: kernels that torch knows nothing of any more may use it. */
static void synchronize(int ordinal)
{
    int device, mode;

    if (!enter(ordinal, &device, &mode))
        return;
    epx_python_cuda()->synchronize();
    leave(device, &mode);
}

static void ordinary_free(void *memory, int ordinal)
{
    int device, mode;

    if (!enter(ordinal, &device, &mode))
        return;
    epx_python_cuda()->free((uintptr_t)memory);
    leave(device, &mode);
}

static void *allocate(int pool, size_t bytes, int ordinal)
{
    struct epx_python_block *block = NULL;
    int64_t owner;

    pthread_mutex_lock(&mutex);
    owner = owners[pool];
    pthread_mutex_unlock(&mutex);
    if (owner && bytes <= INT64_MAX)
        block = epx_python_take(owner - 1, (int64_t)bytes, ordinal);
    return block ? epx_python_block_data(block) : ordinary_allocate(bytes, ordinal);
}

void epx_python_pool_free(void *memory, size_t bytes, int ordinal, void *stream)
{
    (void)bytes;
    (void)stream;
    synchronize(ordinal);
    if (!epx_python_give_at(memory))
        ordinary_free(memory, ordinal);
}

#define POOL(n)                                                                                    \
    void *epx_python_pool_##n(size_t bytes, int ordinal, void *stream);                            \
    void *epx_python_pool_##n(size_t bytes, int ordinal, void *stream)                             \
    {                                                                                              \
        (void)stream;                                                                              \
        return allocate(n, bytes, ordinal);                                                        \
    }

POOL(0)
POOL(1)
POOL(2)
POOL(3)
POOL(4)
POOL(5)
POOL(6)
POOL(7)
POOL(8)
POOL(9)
POOL(10)
POOL(11)
POOL(12)
POOL(13)
POOL(14)
POOL(15)

/* Gives the communicator a function, epx_python_pool_ and this number, until it is freed. Local; a
 * second call gives the same. */
int epx_python_pool(int number, int *pool)
{
    struct epx_python_comm *comm;
    int found = -1;

    EPX_PYTHON_TRY(epx_python_comm(number, &comm));
    pthread_mutex_lock(&mutex);
    for (int i = NUM_POOLS - 1; i >= 0; i--)
        if (owners[i] == (int64_t)number + 1 ||
            (owners[i] == 0 && (found < 0 || owners[found] == 0)))
            found = i;
    if (found >= 0)
        owners[found] = (int64_t)number + 1;
    pthread_mutex_unlock(&mutex);
    if (found < 0)
        return epx_python_fail(EPX_ERR_NO_MEM,
                               "%d communicators have pools already: close one of them", NUM_POOLS);
    *pool = found;
    return EPX_SUCCESS;
}

void epx_python_pool_leave(int64_t number)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < NUM_POOLS; i++)
        if (owners[i] == number + 1)
            owners[i] = 0;
    pthread_mutex_unlock(&mutex);
}

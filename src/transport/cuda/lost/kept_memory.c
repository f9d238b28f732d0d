/* SPDX-License-Identifier: BSD-3-Clause */
/* kept_memory.c - memory that processes of lost ranks have mapped, until they have ended. */
#include "transport/cuda/lost/kept_memory.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "transport/cuda/device_scope.h"

struct kept {
    struct kept *next;
    int ordinal;
    void *memory;
    size_t bytes;
    int num;
    struct epx_process processes[]; /* [num] that may live */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct kept *first; /* under the mutex */
static size_t all_bytes;   /* under the mutex */

/* How many of the processes are left if those at the end that are gone are not counted. */
static int num_left(const struct epx_process *processes, int num)
{
    while (num && epx_process_is_gone(&processes[num - 1]))
        num--;
    return num;
}

static void free_memory(int ordinal, void *memory, size_t bytes)
{
    struct epx_device_scope scope;
    cudaError_t error = epx_device_enter(ordinal, &scope);

    if (error == cudaSuccess) {
        error = cudaFree(memory);
        epx_device_leave(&scope);
    }
    if (error != cudaSuccess)
        EPX_LOG_WARN("%zu bytes of device memory cannot be freed: %s", bytes,
                     cudaGetErrorString(error));
    cudaGetLastError();
}

static struct kept *make(int ordinal, void *memory, size_t bytes,
                         const struct epx_process *processes, int num)
{
    struct kept *kept = malloc(sizeof(*kept) + (size_t)num * sizeof(*processes));

    if (!kept)
        return NULL;
    *kept = (struct kept){NULL, ordinal, memory, bytes, num};
    memcpy(kept->processes, processes, (size_t)num * sizeof(*processes));
    return kept;
}

/* Puts kept memory into the list. The log has a warning of the first, and says of others what is
 * kept. */
static void enlist(struct kept *kept)
{
    pthread_mutex_lock(&mutex);
    all_bytes += kept->bytes;
    epx_log(first ? EPX_LOG_LEVEL_INFO : EPX_LOG_LEVEL_WARN,
            "%zu bytes of device memory, %zu in all, are kept until process %lld, of a rank that "
            "was lost, has ended",
            kept->bytes, all_bytes, (long long)kept->processes[kept->num - 1].id);
    kept->next = first;
    first = kept;
    pthread_mutex_unlock(&mutex);
}

void epx_kept_memory_add(int ordinal, void *memory, size_t bytes,
                         const struct epx_process *processes, int num)
{
    const int left = num_left(processes, num);
    struct kept *kept;

    if (left == 0) {
        free_memory(ordinal, memory, bytes);
        return;
    }
    kept = make(ordinal, memory, bytes, processes, left);
    if (kept)
        enlist(kept);
}

/* Takes one whose processes have ended out of the list; NULL = there is none. */
static struct kept *take(void)
{
    struct kept **link = &first, *kept;

    pthread_mutex_lock(&mutex);
    while (*link && ((*link)->num = num_left((*link)->processes, (*link)->num)) > 0)
        link = &(*link)->next;
    kept = *link;
    if (kept) {
        *link = kept->next;
        all_bytes -= kept->bytes;
    }
    pthread_mutex_unlock(&mutex);
    return kept;
}

void epx_kept_memory_free(void)
{
    struct kept *kept;

    while ((kept = take())) {
        EPX_LOG_INFO("%zu bytes of device memory that were kept are no longer", kept->bytes);
        free_memory(kept->ordinal, kept->memory, kept->bytes);
        free(kept);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nccl_open.c - the functions of NCCL that the module libepx_cuda calls, under their own names:
 * they call those of the library that was opened.
 *
 * Which library fits: calls keep their form within a major version, but structures grow. A library
 * of the version that this was built with fits. So does one that differs in the last number alone,
 * if kernels find what they read of a window at the same place: they read two members, and
 * epx_lsa_layout_is_known says whether the headers that this was built with have them where all do
 * that were compared. contrib/compare-nccl compared the headers in the wheels nvidia-nccl-cu12
 * 2.28.3, 2.28.9 and 2.29.7, and nvidia-nccl-cu13 2.28.3, 2.28.7, 2.28.9, 2.29.2, 2.29.3, 2.29.7,
 * 2.30.3, 2.31.2 and 2.32.3. The two members never moved; ncclConfig_t grew with each middle number
 * and never with the last one. As a library's headers may still not tell all, transport_lsa.c looks
 * at the addresses that it gets from a library of another version before it uses them.
 */
#include "transport/nccl/nccl_open.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>

#include "transport/nccl/lsa_window.h"
#include "transport/transport.h"

#define LIBRARY "libnccl.so.2"

/* F(result, name, parameters, arguments) */
#define FUNCTIONS(F)                                                                               \
    F(ncclResult_t, ncclGetVersion, (int *version), (version))                                     \
    F(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))                                    \
    F(ncclResult_t, ncclCommInitRankConfig,                                                        \
      (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config),              \
      (comm, size, id, rank, config))                                                              \
    F(ncclResult_t, ncclCommDestroy, (ncclComm_t comm), (comm))                                    \
    F(ncclResult_t, ncclCommAbort, (ncclComm_t comm), (comm))                                      \
    F(const char *, ncclGetErrorString, (ncclResult_t result), (result))                           \
    F(ncclResult_t, ncclMemAlloc, (void **memory, size_t bytes), (memory, bytes))                  \
    F(ncclResult_t, ncclMemFree, (void *memory), (memory))                                         \
    F(ncclResult_t, ncclCommWindowRegister,                                                        \
      (ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *window, int flags),              \
      (comm, memory, bytes, window, flags))                                                        \
    F(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window),              \
      (comm, window))                                                                              \
    F(ncclResult_t, ncclGroupStart, (void), ())                                                    \
    F(ncclResult_t, ncclGroupEnd, (void), ())                                                      \
    F(ncclResult_t, ncclSend,                                                                      \
      (const void *from, size_t count, ncclDataType_t type, int rank, ncclComm_t comm,             \
       cudaStream_t stream),                                                                       \
      (from, count, type, rank, comm, stream))                                                     \
    F(ncclResult_t, ncclRecv,                                                                      \
      (void *to, size_t count, ncclDataType_t type, int rank, ncclComm_t comm,                     \
       cudaStream_t stream),                                                                       \
      (to, count, type, rank, comm, stream))

/* nccl.h has no prototypes of functions without parameters. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#define MEMBER(result, name, parameters, arguments) result(*name) parameters;
static struct {
    FUNCTIONS(MEMBER)
} nccl;

#define DEFINE(result, name, parameters, arguments)                                                \
    result name parameters                                                                         \
    {                                                                                              \
        return nccl.name arguments;                                                                \
    }
FUNCTIONS(DEFINE)

#define ENTRY(result, name, parameters, arguments) {#name, (void **)&nccl.name},
static const struct {
    const char *name;
    void **function;
} entries[] = {FUNCTIONS(ENTRY)};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;
static int version; /* of the library */
static char problem[EPX_WHY_MAX];

void *epx_nccl_find(const char *name)
{
    return dlsym(library, name);
}

static int has_all(void)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        *entries[i].function = epx_nccl_find(entries[i].name);
        if (!*entries[i].function) {
            snprintf(problem, sizeof(problem), "%s has no %s", LIBRARY, entries[i].name);
            return 0;
        }
    }
    return 1;
}

int epx_nccl_is_of_build(void)
{
    return version == NCCL_VERSION_CODE;
}

static int fits(void)
{
    return epx_nccl_is_of_build() ||
           (version / 100 == NCCL_VERSION_CODE / 100 && epx_lsa_layout_is_known());
}

static void open_library(void)
{
    library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(problem, sizeof(problem), "%.*s", EPX_WHY_MAX - 1, dlerror());
    else if (has_all() && (ncclGetVersion(&version) != ncclSuccess || !fits()))
        snprintf(problem, sizeof(problem),
                 "NCCL is of version %d.%d.%d at run time, EPX was built with %d.%d.%d",
                 version / 10000, version / 100 % 100, version % 100, NCCL_MAJOR, NCCL_MINOR,
                 NCCL_PATCH);
}

int epx_nccl_open(char *why)
{
    pthread_once(&once, open_library);
    snprintf(why, EPX_WHY_MAX, "%s", *problem ? problem : "usable");
    return !*problem;
}

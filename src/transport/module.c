/* SPDX-License-Identifier: BSD-3-Clause */
/* module.c - finds modules of libepx, and opens libepx_cuda. */
#define _GNU_SOURCE /* dladdr */
#include "transport/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/agree.h"
#include "core/health/comm_end.h"
#include "core/lock.h"
#include "core/progress.h"

#define ENTRY_OF_CALL(result, name, parameters, arguments) .name = epx_##name,
#define ENTRY_OF_RUN(name, parameters, arguments) .name = epx_##name,
static const struct epx_core core = {EPX_CORE_FUNCTIONS(ENTRY_OF_CALL, ENTRY_OF_RUN)};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct epx_module *module;
static char why[EPX_MAX_ERROR_STRING];

/* The folder of libepx, with its slash; its length. */
static int folder_of_library(const Dl_info *here)
{
    const char *slash = here->dli_fname ? strrchr(here->dli_fname, '/') : NULL;

    return slash ? (int)(slash - here->dli_fname) + 1 : 0;
}

void *epx_module_find(const char *name, char reason[EPX_MAX_ERROR_STRING])
{
    static const char *const places[] = {"epx/", "", ".libs/"};
    char path[PATH_MAX];
    Dl_info here = {0};
    void *library;

    snprintf(reason, EPX_MAX_ERROR_STRING, "no %s", name);
    for (size_t i = 0; dladdr(&once, &here) && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%.*s%s%s", folder_of_library(&here), here.dli_fname,
                 places[i], name);
        if (access(path, R_OK) != 0)
            continue;
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        snprintf(reason, EPX_MAX_ERROR_STRING, "%s", dlerror());
    }
    snprintf(path, sizeof(path), "%s/%s", EPX_MODULE_DIR, name);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(reason, EPX_MAX_ERROR_STRING, "%s", dlerror());
    return library;
}

const struct epx_core *epx_module_core(void)
{
    return &core;
}

static void open_module(void)
{
    void *library = epx_module_find("libepx_cuda.so", why);
    epx_module_entry *entry = NULL;

    if (!library)
        return;
    *(void **)&entry = dlsym(library, "epx_cuda_module");
    module = entry ? entry(&core) : NULL;
    if (!module || module->version != EPX_MODULE_VERSION) {
        snprintf(why, sizeof(why), "libepx_cuda is of another version than libepx");
        module = NULL;
    }
}

const struct epx_module *epx_module_open(void)
{
    pthread_once(&once, open_module);
    if (!module)
        epx_fail_quietly(EPX_ERR_UNSUPPORTED, why);
    return module;
}

/* The driver, if it is loaded. A fork waits for the lock: a child would have half of the loader's
 * work. */
static void *find_loaded_driver(void)
{
    void *driver;

    epx_lock();
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    epx_unlock();
    return driver;
}

int epx_module_has_context(void)
{
    void *driver = find_loaded_driver();
    int (*get_current)(void **) = NULL;
    void *context = NULL;

    if (!driver)
        return 0;
    *(void **)&get_current = dlsym(driver, "cuCtxGetCurrent");
    if (!get_current || get_current(&context) != 0)
        context = NULL;
    dlclose(driver);
    return context != NULL;
}

/* cuPointerGetAttribute; NULL = not found. */
static int (*ask_pointer)(void *value, int attribute, unsigned long long pointer);

void epx_module_find_driver(void)
{
    int (*found)(void *, int, unsigned long long) = NULL;
    void *driver;

    if (__atomic_load_n(&ask_pointer, __ATOMIC_ACQUIRE))
        return;
    driver = find_loaded_driver();
    if (!driver)
        return;
    *(void **)&found = dlsym(driver, "cuPointerGetAttribute");
    if (found)
        __atomic_store_n(&ask_pointer, found, __ATOMIC_RELEASE); /* the driver stays open */
    else
        dlclose(driver);
}

int epx_module_has_driver(void)
{
    return __atomic_load_n(&ask_pointer, __ATOMIC_ACQUIRE) != NULL;
}

int epx_module_is_device_memory(const void *address)
{
    enum { MEMORY_TYPE = 2, DEVICE_MEMORY = 2, IS_MANAGED = 8 }; /* as in cuda.h */
    int (*ask)(void *, int, unsigned long long) = __atomic_load_n(&ask_pointer, __ATOMIC_ACQUIRE);
    unsigned long long pointer = (uintptr_t)address;
    unsigned type = 0, managed = 0;

    if (!ask || ask(&type, MEMORY_TYPE, pointer) != 0 || type != DEVICE_MEMORY)
        return 0;
    return ask(&managed, IS_MANAGED, pointer) == 0 && !managed;
}

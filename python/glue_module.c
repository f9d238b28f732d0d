/* SPDX-License-Identifier: BSD-3-Clause */
/* glue_module.c - opens _mpi.so. */
#define _GNU_SOURCE /* dladdr, dl_iterate_phdr */
#include "glue.h"

#include <dlfcn.h>
#include <link.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const struct epx_python_core core = {
    .fail_list = epx_python_fail_list,
    .fail_alone = epx_python_fail_alone,
    .now_ns = epx_python_now_ns,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct epx_python_mpi *_Atomic mpi;
static char why[EPX_MAX_ERROR_STRING] = "_mpi.so is not beside _glue.so";

/* The path of this library with _mpi for _glue: both may have a suffix of Python's. */
static int find_module(char path[PATH_MAX])
{
    static const char own[] = "_glue", other[] = "_mpi";
    const char *name = NULL;
    Dl_info here = {0};

    if (dladdr(&once, &here) && here.dli_fname)
        name = strrchr(here.dli_fname, '/');
    if (!name || strncmp(name + 1, own, sizeof(own) - 1) != 0)
        return 0;
    snprintf(path, PATH_MAX, "%.*s%s%s", (int)(name + 1 - here.dli_fname), here.dli_fname, other,
             name + sizeof(own));
    return 1;
}

static void open_module(void)
{
    const struct epx_python_mpi *(*entry)(const struct epx_python_core *) = NULL;
    char path[PATH_MAX];
    void *library;

    if (!find_module(path))
        return;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, sizeof(why), "%s", dlerror());
        return;
    }
    *(void **)&entry = dlsym(library, "epx_python_mpi_module");
    if (entry)
        atomic_store(&mpi, entry(&core));
}

const struct epx_python_mpi *epx_python_mpi_open(void)
{
    pthread_once(&once, open_module);
    if (!mpi)
        epx_python_fail(EPX_ERR_NOT_INITIALIZED,
                        "MPI cannot be used: %.400s. torchrun starts ranks without it", why);
    return mpi;
}

static int is_library_of_mpi(struct dl_phdr_info *library, size_t bytes, void *unused)
{
    const char *slash = strrchr(library->dlpi_name, '/');

    (void)bytes;
    (void)unused;
    return slash && strncmp(slash + 1, "libmpi", strlen("libmpi")) == 0;
}

const struct epx_python_mpi *epx_python_mpi_there(void)
{
    if (!mpi && dl_iterate_phdr(is_library_of_mpi, NULL))
        pthread_once(&once, open_module);
    return mpi;
}

const struct epx_python_mpi *epx_python_mpi(void)
{
    return mpi;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_open.c - opens libepx_mpi. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "control/mpi_module.h"
#include "transport/module.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct epx_mpi *mpi;
static char why[EPX_MAX_ERROR_STRING];

static void open_module(void)
{
    const struct epx_mpi *(*entry)(const struct epx_core *) = NULL;
    void *library = epx_module_find("libepx_mpi.so", why);

    if (!library)
        return;
    *(void **)&entry = dlsym(library, "epx_mpi_module");
    mpi = entry ? entry(epx_module_core()) : NULL;
    if (!mpi || mpi->version != EPX_MPI_MODULE_VERSION) {
        snprintf(why, sizeof(why), "libepx_mpi is of another version than libepx");
        mpi = NULL;
    }
}

const struct epx_mpi *epx_mpi_open(void)
{
    pthread_once(&once, open_module);
    if (!mpi)
        epx_fail_quietly(EPX_ERR_NOT_INITIALIZED, why);
    return mpi;
}

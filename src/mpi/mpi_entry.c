/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_entry.c - where libepx enters the module libepx_mpi. */
#include "mpi/mpi_parts.h"
#include "transport/module.h"

const struct epx_mpi *epx_mpi_module(const struct epx_core *core);

const struct epx_mpi *epx_mpi_module(const struct epx_core *core)
{
    epx_module_use(core);
    return &epx_mpi_table;
}

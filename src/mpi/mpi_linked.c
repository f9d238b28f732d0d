/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_linked.c - for programs that are linked with the parts of libepx_mpi: tests and epx_info. */
#include "mpi/mpi_parts.h"

const struct epx_mpi *epx_mpi_open(void)
{
    return &epx_mpi_table;
}

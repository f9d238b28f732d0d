# SPDX-License-Identifier: BSD-3-Clause
# All that calls MPI: libepx_mpi_parts, which tests and epx_info link, is the module libepx_mpi with
# an entry for libepx.
libepx_mpi_parts_la_SOURCES += \
  src/mpi/mpi_comms.c \
  src/mpi/mpi_errors.c \
  src/mpi/mpi_linked.c \
  src/mpi/mpi_parts.h \
  src/mpi/mpi_table.c \
  src/mpi/mpi_topology.c \
  src/mpi/mpi_values.c

libepx_mpi_la_SOURCES += \
  src/mpi/mpi_entry.c \
  src/transport/module_core.c

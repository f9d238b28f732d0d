# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/transport/mpi/mpi_liveness.c \
  src/transport/mpi/mpi_liveness.h \
  src/transport/mpi/transport_mpi.c

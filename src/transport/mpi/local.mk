# SPDX-License-Identifier: BSD-3-Clause
libepx_mpi_parts_la_SOURCES += \
  src/transport/mpi/mpi_joint.c \
  src/transport/mpi/mpi_joint.h \
  src/transport/mpi/transport_mpi.c

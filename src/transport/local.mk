# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/transport/list.c \
  src/transport/list.h \
  src/transport/module.c \
  src/transport/module.h \
  src/transport/transport.c \
  src/transport/transport.h

libepx_la_SOURCES += \
  src/transport/mpi_open.c

libepx_cuda_la_SOURCES += \
  src/transport/list.c \
  src/transport/module_core.c

include src/transport/shm/local.mk
include src/transport/mpi/local.mk
include src/transport/ucx/local.mk
include src/transport/nccl/local.mk
include src/transport/cuda/local.mk

# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/transport/cuda/lost/kept_memory.c \
  src/transport/cuda/lost/kept_memory.h \
  src/transport/cuda/lost/process.c \
  src/transport/cuda/lost/process.h

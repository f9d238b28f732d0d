# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/transport/cuda/asked_copies.c \
  src/transport/cuda/asked_copies.h \
  src/transport/cuda/bounce_rounds.c \
  src/transport/cuda/bounce_rounds.h \
  src/transport/cuda/cuda_errors.c \
  src/transport/cuda/cuda_errors.h \
  src/transport/cuda/device_ranks.c \
  src/transport/cuda/device_ranks.h \
  src/transport/cuda/device_scope.c \
  src/transport/cuda/device_scope.h \
  src/transport/cuda/device_windows.c \
  src/transport/cuda/device_windows.h \
  src/transport/cuda/driver_call.c \
  src/transport/cuda/driver_call.h \
  src/transport/cuda/multiprocessors.c \
  src/transport/cuda/multiprocessors.h \
  src/transport/cuda/peer_windows.c \
  src/transport/cuda/peer_windows.h \
  src/transport/cuda/pieces.h \
  src/transport/cuda/transport_bounce.c \
  src/transport/cuda/transport_ipc.c

include src/transport/cuda/lost/local.mk

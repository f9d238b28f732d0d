# SPDX-License-Identifier: BSD-3-Clause
if HAVE_UCX
libepx_core_la_SOURCES += \
  src/transport/ucx/transport_ucx.c \
  src/transport/ucx/ucx_context.c \
  src/transport/ucx/ucx_context.h \
  src/transport/ucx/ucx_link.h \
  src/transport/ucx/ucx_connect.c \
  src/transport/ucx/ucx_links.h \
  src/transport/ucx/ucx_liveness.c \
  src/transport/ucx/ucx_memory.c \
  src/transport/ucx/ucx_messages.c \
  src/transport/ucx/ucx_room.c \
  src/transport/ucx/ucx_room.h
endif

if HAVE_UCX
libepx_cuda_la_SOURCES += \
  src/transport/ucx/transport_ucx_device.c \
  src/transport/ucx/transport_ucx_device.h \
  src/transport/ucx/ucx_context.c \
  src/transport/ucx/ucx_context.h \
  src/transport/ucx/ucx_exchange.c \
  src/transport/ucx/ucx_room.c \
  src/transport/ucx/ucx_room.h
endif

# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/coll/device/staged/alltoallv_device_staged.c \
  src/coll/device/staged/device_nodes.c \
  src/coll/device/staged/device_nodes.h \
  src/coll/device/staged/moves_device_staged.c \
  src/coll/device/staged/proxy.c \
  src/coll/device/staged/proxy.h \
  src/coll/device/staged/routing_device_staged.c \
  src/coll/device/staged/rounds_stream.c \
  src/coll/device/staged/rounds_stream.h

# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/coll/device/direct/alltoallv_device_direct.c \
  src/coll/device/direct/kept_counts.c \
  src/coll/device/direct/kept_counts.h \
  src/coll/device/direct/moves_device_direct.c \
  src/coll/device/direct/rests.c \
  src/coll/device/direct/rests.h \
  src/coll/device/direct/route_dispatch_device_direct.c \
  src/coll/device/direct/routing_device_direct.c

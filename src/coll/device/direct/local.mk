# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/coll/device/direct/alltoallv_device_direct.c \
  src/coll/device/direct/combine_device_direct.c \
  src/coll/device/direct/dispatch_device_direct.c \
  src/coll/device/direct/rests.c \
  src/coll/device/direct/rests.h \
  src/coll/device/direct/route_dispatch_device_direct.c \
  src/coll/device/direct/routing_device_direct.c \
  src/coll/device/direct/small_banks.c \
  src/coll/device/direct/small_banks.h \
  src/coll/device/direct/small_route.c \
  src/coll/device/direct/small_route.h

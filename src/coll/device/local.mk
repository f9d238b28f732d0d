# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/coll/device/alltoallv_device_direct.c \
  src/coll/device/alltoallv_device_staged.c \
  src/coll/device/combine_device_direct.c \
  src/coll/device/combine_device_staged.c \
  src/coll/device/control_window.c \
  src/coll/device/device.c \
  src/coll/device/device.h \
  src/coll/device/device_liveness.c \
  src/coll/device/device_nodes.c \
  src/coll/device/device_nodes.h \
  src/coll/device/device_order.c \
  src/coll/device/dispatch_device_direct.c \
  src/coll/device/dispatch_device_staged.c \
  src/coll/device/module_cuda.c \
  src/coll/device/operation_args.c \
  src/coll/device/outcome.c \
  src/coll/device/proxy.c \
  src/coll/device/proxy.h \
  src/coll/device/routing_device.c \
  src/coll/device/routing_device_staged.c

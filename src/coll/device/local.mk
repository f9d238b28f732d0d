# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/coll/device/control_window.c \
  src/coll/device/control_window.h \
  src/coll/device/device.h \
  src/coll/device/device_create.c \
  src/coll/device/device_create.h \
  src/coll/device/device_liveness.c \
  src/coll/device/device_liveness.h \
  src/coll/device/device_order.c \
  src/coll/device/device_order.h \
  src/coll/device/device_verbs.h \
  src/coll/device/ground_device.c \
  src/coll/device/ground_device.h \
  src/coll/device/launch.c \
  src/coll/device/launch.h \
  src/coll/device/module_cuda.c \
  src/coll/device/operation_args.c \
  src/coll/device/operation_args.h \
  src/coll/device/outcome.c \
  src/coll/device/outcome.h \
  src/coll/device/plan_device.c \
  src/coll/device/plan_device.h \
  src/coll/device/user_memory.c \
  src/coll/device/user_memory.h \
  src/coll/device/way_device.c

include src/coll/device/direct/local.mk
include src/coll/device/graph/local.mk
include src/coll/device/health/local.mk
include src/coll/device/staged/local.mk

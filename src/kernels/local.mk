# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/kernels/element.h \
  src/kernels/layout.h \
  src/kernels/node_rows.h \
  src/kernels/plan.h \
  src/kernels/plan_shape.h \
  src/kernels/slabs.h

libepx_cuda_la_SOURCES += \
  src/kernels/control_words.h \
  src/kernels/copy_queues.h \
  src/kernels/device_plan.h \
  src/kernels/policy.cuh \
  src/kernels/ring.h \
  src/kernels/slices.h \
  src/kernels/small_parts.h

include src/kernels/args/local.mk
include src/kernels/host/local.mk
include src/kernels/warp/local.mk
include src/kernels/protocol/local.mk
include src/kernels/wires/local.mk
include src/kernels/routing/local.mk
include src/kernels/flows/local.mk
include src/kernels/alltoallv/local.mk

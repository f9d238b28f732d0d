# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/coll/device/graph/device_graph.c \
  src/coll/device/graph/device_graph.h

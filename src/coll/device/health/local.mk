# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/coll/device/health/device_leave.c \
  src/coll/device/health/device_leave.h

# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/core/health/comm_end.c \
  src/core/health/comm_end.h \
  src/core/health/patience.c \
  src/core/health/patience.h \
  src/core/health/survivors.c \
  src/core/health/survivors.h \
  src/core/health/trace.c \
  src/core/health/trace.h \
  src/core/health/trace_file.c \
  src/core/health/trace_file.h \
  src/core/health/wait_times.c \
  src/core/health/wait_times.h

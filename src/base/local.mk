# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/base/clock.c \
  src/base/clock.h \
  src/base/field.h \
  src/base/flags.h \
  src/base/jitter.h \
  src/base/log.c \
  src/base/log.h \
  src/base/machine.c \
  src/base/machine.h \
  src/base/machine_key.c \
  src/base/machine_key.h \
  src/base/memory.c \
  src/base/memory.h \
  src/base/nearest.c \
  src/base/nearest.h \
  src/base/param.c \
  src/base/param.h \
  src/base/pause.c \
  src/base/pause.h \
  src/base/stats.c \
  src/base/stats.h \
  src/base/status.c \
  src/base/status.h

if ENABLE_JITTER
libepx_core_la_SOURCES += \
  src/base/jitter.c
endif

libepx_mpi_la_SOURCES += \
  src/base/clock.c

libepx_cuda_la_SOURCES += \
  src/base/clock.c \
  src/base/machine.c \
  src/base/memory.c

if ENABLE_JITTER
libepx_cuda_la_SOURCES += \
  src/base/jitter.c
endif

# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/core/agree.c \
  src/core/agree.h \
  src/core/birth.c \
  src/core/birth.h \
  src/core/comm.c \
  src/core/comm.h \
  src/core/comm_create.c \
  src/core/handle.c \
  src/core/handle.h \
  src/core/letter_liveness.c \
  src/core/letter_liveness.h \
  src/core/lock.c \
  src/core/lock.h \
  src/core/progress.c \
  src/core/progress.h \
  src/core/ready.c \
  src/core/ready.h \
  src/core/request.c \
  src/core/request.h \
  src/core/route.c \
  src/core/route.h \
  src/core/route_create.c \
  src/core/verdict.c \
  src/core/verdict.h

libepx_cuda_la_SOURCES += \
  src/core/verdict.c

include src/core/graph/local.mk

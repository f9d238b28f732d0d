# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/coll/alltoallv.c \
  src/coll/alltoallv.h \
  src/coll/attach.c \
  src/coll/attach.h \
  src/coll/combine_weights.c \
  src/coll/ground.c \
  src/coll/ground.h \
  src/coll/moves.c \
  src/coll/rounding.h \
  src/coll/route_dispatch.c \
  src/coll/route_plan.c \
  src/coll/route_plan.h \
  src/coll/routing.c \
  src/coll/routing.h \
  src/coll/tuning.c \
  src/coll/tuning.h \
  src/coll/verbs.c \
  src/coll/verbs.h

libepx_cuda_la_SOURCES += \
  src/coll/route_plan.c \
  src/coll/tuning.c

include src/coll/direct/local.mk
include src/coll/staged/local.mk
include src/coll/hier/local.mk
include src/coll/device/local.mk

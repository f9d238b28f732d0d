# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/coll/direct/alltoallv_direct.c \
  src/coll/direct/combine_direct.c \
  src/coll/direct/direct.c \
  src/coll/direct/direct.h \
  src/coll/direct/dispatch_direct.c \
  src/coll/direct/edge_operation.h \
  src/coll/direct/edges.c \
  src/coll/direct/edges.h \
  src/coll/direct/edges_in.c \
  src/coll/direct/edges_out.c \
  src/coll/direct/ground_direct.c \
  src/coll/direct/routing_direct.c

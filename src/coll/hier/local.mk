# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/coll/hier/moves_hier.c \
  src/coll/hier/ground_hier.c \
  src/coll/hier/hier.c \
  src/coll/hier/hier.h \
  src/coll/hier/hier_blocks.c \
  src/coll/hier/node_plan.c \
  src/coll/hier/routing_hier.c

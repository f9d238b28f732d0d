# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/coll/staged/alltoallv_staged.c \
  src/coll/staged/moves_staged.c \
  src/coll/staged/ground_staged.c \
  src/coll/staged/peer_rows.c \
  src/coll/staged/peer_rows.h \
  src/coll/staged/routing_staged.c \
  src/coll/staged/staged.c \
  src/coll/staged/staged.h

# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/core/graph/graph.c \
  src/core/graph/graph.h \
  src/core/graph/graph_create.c

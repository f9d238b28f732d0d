# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/transport/shm/node_window.c \
  src/transport/shm/node_window.h \
  src/transport/shm/transport_shm.c

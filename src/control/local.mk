# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/control/addresses.c \
  src/control/addresses.h \
  src/control/cards.c \
  src/control/connections.c \
  src/control/connections.h \
  src/control/contact.h \
  src/control/contact_parts.c \
  src/control/contact_parts.h \
  src/control/control.c \
  src/control/control.h \
  src/control/control_mpi.h \
  src/control/control_sockets.c \
  src/control/control_sockets.h \
  src/control/knocking.c \
  src/control/mpi_module.h

libepx_mpi_parts_la_SOURCES += \
  src/control/control_mpi.c

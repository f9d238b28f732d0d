# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/control/control.c \
  src/control/control.h \
  src/control/control_mpi.c \
  src/control/control_mpi.h

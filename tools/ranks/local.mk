# SPDX-License-Identifier: BSD-3-Clause
# How the ranks of a tool meet: epx_perf needs all of it, epx_info the address alone.
epx_info_SOURCES += \
  tools/ranks/by_address.c \
  tools/ranks/by_address.h

epx_perf_SOURCES += \
  src/base/clock.c \
  src/base/clock.h \
  src/base/machine_key.c \
  src/base/machine_key.h \
  tools/ranks/by_address.c \
  tools/ranks/by_address.h \
  tools/ranks/ranks.c \
  tools/ranks/ranks.h \
  tools/ranks/ranks_epx.c \
  tools/ranks/ranks_maker.h \
  tools/ranks/ranks_mpi.c

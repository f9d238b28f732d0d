# SPDX-License-Identifier: BSD-3-Clause
epx_perf_SOURCES += \
  tools/epx_perf/neighbor/neighbor_options.c \
  tools/epx_perf/neighbor/neighbor_options.h \
  tools/epx_perf/neighbor/neighbor_ways.c \
  tools/epx_perf/neighbor/neighbor_ways.h \
  tools/epx_perf/neighbor/perf_neighbor.c \
  tools/epx_perf/neighbor/perf_neighbor.h

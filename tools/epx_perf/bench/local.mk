# SPDX-License-Identifier: BSD-3-Clause
epx_perf_SOURCES += \
  tools/epx_perf/bench/perf_bench.c \
  tools/epx_perf/bench/perf_ids.c \
  tools/epx_perf/bench/perf_load.c

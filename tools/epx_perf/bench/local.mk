# SPDX-License-Identifier: BSD-3-Clause
epx_perf_SOURCES += \
  tools/epx_perf/bench/perf_bench.c \
  tools/epx_perf/bench/perf_bench.h \
  tools/epx_perf/bench/perf_comm.c \
  tools/epx_perf/bench/perf_comm.h \
  tools/epx_perf/bench/perf_ids.c \
  tools/epx_perf/bench/perf_ids.h \
  tools/epx_perf/bench/perf_load.c \
  tools/epx_perf/bench/perf_load.h \
  tools/epx_perf/bench/perf_machine.c \
  tools/epx_perf/bench/perf_machine.h \
  tools/epx_perf/bench/perf_number.c \
  tools/epx_perf/bench/perf_number.h \
  tools/epx_perf/bench/perf_options.h \
  tools/epx_perf/bench/perf_verb.h

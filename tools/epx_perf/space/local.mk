# SPDX-License-Identifier: BSD-3-Clause
epx_perf_SOURCES += \
  tools/epx_perf/space/perf_agree.c \
  tools/epx_perf/space/perf_agree.h \
  tools/epx_perf/space/perf_alloc.c \
  tools/epx_perf/space/perf_alloc.h \
  tools/epx_perf/space/perf_buffer.c \
  tools/epx_perf/space/perf_buffer.h \
  tools/epx_perf/space/perf_space.h \
  tools/epx_perf/space/perf_space_host.c \
  tools/epx_perf/space/perf_spaces.c \
  tools/epx_perf/space/perf_spaces.h \
  tools/epx_perf/space/perf_time.c \
  tools/epx_perf/space/perf_time.h

tools_epx_perf_libperf_cuda_la_SOURCES += \
  tools/epx_perf/space/perf_ceiling.c \
  tools/epx_perf/space/perf_ceiling.h \
  tools/epx_perf/space/perf_gemm.c \
  tools/epx_perf/space/perf_gemm.h \
  tools/epx_perf/space/perf_kernels.cu \
  tools/epx_perf/space/perf_kernels.h \
  tools/epx_perf/space/perf_must.c \
  tools/epx_perf/space/perf_must.h \
  tools/epx_perf/space/perf_symbols.c \
  tools/epx_perf/space/perf_symbols.h \
  tools/epx_perf/space/perf_space_cuda.c

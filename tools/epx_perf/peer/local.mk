# SPDX-License-Identifier: BSD-3-Clause
epx_perf_SOURCES += \
  tools/epx_perf/peer/peer_kinds.c \
  tools/epx_perf/peer/peer_kinds.h \
  tools/epx_perf/peer/peer_mpi.c \
  tools/epx_perf/peer/peer_steps.h \
  tools/epx_perf/peer/peer_sum.c \
  tools/epx_perf/peer/peer_sum.h \
  tools/epx_perf/peer/perf_peer.c \
  tools/epx_perf/peer/perf_peer.h

tools_epx_perf_libperf_cuda_la_SOURCES += \
  tools/epx_perf/peer/peer_cuda.c \
  tools/epx_perf/peer/peer_cuda.h \
  tools/epx_perf/peer/peer_kernels.cu \
  tools/epx_perf/peer/peer_kernels.h \
  tools/epx_perf/peer/peer_staged.c
if HAVE_NCCL
tools_epx_perf_libperf_cuda_la_SOURCES += tools/epx_perf/peer/peer_nccl.c
endif

# SPDX-License-Identifier: BSD-3-Clause
bin_PROGRAMS += epx_info epx_perf
epx_info_SOURCES = tools/epx_info.c
epx_info_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/src
epx_info_LDADD = libepx_core.la

epx_perf_SOURCES = \
  tools/epx_perf.h \
  tools/epx_perf.c \
  tools/epx_perf_bench.c \
  tools/epx_perf_check.c \
  tools/epx_perf_ids.c \
  tools/epx_perf_load.c \
  tools/epx_perf_measure.c \
  tools/epx_perf_options.c \
  tools/epx_perf_peer.c \
  tools/epx_perf_peer.h \
  tools/epx_perf_peer_mpi.c \
  tools/epx_perf_peer_sum.c \
  tools/epx_perf_report.c \
  tools/epx_perf_space.c \
  tools/epx_perf_space.h \
  tools/epx_perf_space_host.c \
  tools/epx_perf_verb.c
epx_perf_LDADD = $(perf_cuda) libepx.la $(MPI_LIBS) -lm

# What of epx_perf needs CUDA. NCCL is opened at run time.
if HAVE_CUDA
perf_cuda = tools/libperf_cuda.la
noinst_LTLIBRARIES += tools/libperf_cuda.la
endif
tools_libperf_cuda_la_CPPFLAGS = $(AM_CPPFLAGS) $(vendor_cppflags)
tools_libperf_cuda_la_LIBADD = $(CUDA_LIBS)
tools_libperf_cuda_la_SOURCES = \
  tools/epx_perf_ceiling.c \
  tools/epx_perf_cuda.cu \
  tools/epx_perf_cuda.h \
  tools/epx_perf_peer_cuda.c \
  tools/epx_perf_peer_cuda.cu \
  tools/epx_perf_peer_cuda.h \
  tools/epx_perf_peer_staged.c \
  tools/epx_perf_space_cuda.c
if HAVE_NCCL
tools_libperf_cuda_la_SOURCES += tools/epx_perf_peer_nccl.c
endif

dist_bin_SCRIPTS = tools/epx_perf_plot

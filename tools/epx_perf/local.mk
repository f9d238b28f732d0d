# SPDX-License-Identifier: BSD-3-Clause
bin_PROGRAMS += epx_perf
dist_bin_SCRIPTS = tools/epx_perf/epx_perf_plot tools/epx_perf/epx_perf_sweep
epx_perf_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/tools -I$(top_srcdir)/src \
  -I$(top_srcdir)/examples
epx_perf_LDADD = $(perf_cuda) libepx.la $(MPI_LIBS) -lm
epx_perf_SOURCES = \
  tools/epx_perf/epx_perf.c \
  tools/epx_perf/perf_check.c \
  tools/epx_perf/perf_check.h \
  tools/epx_perf/perf_command_line.c \
  tools/epx_perf/perf_command_line.h \
  tools/epx_perf/perf_error.c \
  tools/epx_perf/perf_error.h \
  tools/epx_perf/perf_expect.c \
  tools/epx_perf/perf_expect.h \
  tools/epx_perf/perf_explain.c \
  tools/epx_perf/perf_explain.h \
  tools/epx_perf/perf_measure.c \
  tools/epx_perf/perf_measure.h \
  tools/epx_perf/perf_overlap.c \
  tools/epx_perf/perf_overlap.h \
  tools/epx_perf/perf_progress.c \
  tools/epx_perf/perf_progress.h \
  tools/epx_perf/perf_report.c \
  tools/epx_perf/perf_report.h \
  tools/epx_perf/perf_verbs.c \
  tools/epx_perf/perf_verbs.h \
  tools/json.c \
  tools/json.h \
  examples/watch/mpi_watch.c \
  examples/watch/mpi_watch.h \
  tools/option_meant.c \
  tools/option_meant.h \
  src/base/nearest.c \
  src/base/nearest.h

# The part of epx_perf that needs CUDA. NCCL is opened at run time.
if HAVE_CUDA
perf_cuda = tools/epx_perf/libperf_cuda.la
noinst_LTLIBRARIES += tools/epx_perf/libperf_cuda.la
endif
tools_epx_perf_libperf_cuda_la_CPPFLAGS = $(epx_perf_CPPFLAGS) $(vendor_cppflags)
tools_epx_perf_libperf_cuda_la_LIBADD = $(CUDA_LIBS)
# Programs look for NCCL where the module libepx_cuda does.
epx_perf_LDFLAGS = $(NCCL_LDFLAGS)
tools_epx_perf_libperf_cuda_la_SOURCES =
# The rule for .cu files reads AM_CPPFLAGS, not the flags of one library.
tools/epx_perf/%_kernels.lo: AM_CPPFLAGS += -I$(top_srcdir)/tools

# The layers, lowest first; this folder is the last one.
include tools/epx_perf/space/local.mk
include tools/epx_perf/bench/local.mk
include tools/epx_perf/peer/local.mk
include tools/epx_perf/neighbor/local.mk

# SPDX-License-Identifier: BSD-3-Clause
# The test programs, the matrix of their runs (tests/testlist), and the lints.
TEST_EXTENSIONS = .sh .mpi
AM_TESTS_ENVIRONMENT = \
  MPIEXEC='$(MPIEXEC)'; export MPIEXEC; \
  srcdir='$(srcdir)'; export srcdir; \
  CC='$(CC)'; export CC; \
  CXX='$(CXX)'; export CXX; \
  NM='$(NM)'; export NM; \
  LIBTOOL='$(LIBTOOL)'; export LIBTOOL; \
  MPI_CFLAGS='$(MPI_CFLAGS)'; export MPI_CFLAGS; \
  MPI_LIBS='$(MPI_LIBS)'; export MPI_LIBS;
SH_LOG_COMPILER = $(SHELL)
MPI_LOG_COMPILER = $(SHELL) $(srcdir)/tests/run

lints = \
  tests/lint_man.sh \
  tests/lint_layers.sh \
  tests/lint_headers.sh \
  tests/lint_exports.sh \
  tests/lint_readme.sh
TESTS += $(lints) tests/check_fortran.sh
EXTRA_DIST += $(lints) tests/check_fortran.sh tests/fortran.F90
EXTRA_DIST += tests/run tests/pretend_host tests/testlist

# Every line of the matrix is a test of its own, listed by configure; an empty file names it.
if HAVE_CHECK
TESTS += @TEST_MATRIX@
check_LTLIBRARIES += tests/libsuite.la
check_PROGRAMS += $(test_programs) $(unit_programs)
endif
CLEANFILES += $(TEST_MATRIX)

$(TEST_MATRIX): $(srcdir)/tests/testlist
	@$(MKDIR_P) tests
	@: >$@

# Enough to try another MPI or compiler by: no more ranks than a small machine has cores, and not
# those tests that wait for time-outs or fill the memory.
short_tests = $(lints) tests/check_fortran.sh \
  $(filter-out tests/test_big-% tests/test_mismatch-%,$(filter %-1.mpi %-2.mpi,$(TEST_MATRIX)))

check-short:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(short_tests)'

.PHONY: check-short

suite_cppflags = $(AM_CPPFLAGS) $(CHECK_CFLAGS)

tests_libsuite_la_CPPFLAGS = $(suite_cppflags)
tests_libsuite_la_SOURCES = \
  tests/buffer.c \
  tests/buffer.h \
  tests/data.c \
  tests/data.h \
  tests/exchange.c \
  tests/exchange.h \
  tests/fault.c \
  tests/fault.h \
  tests/layer.c \
  tests/layer.h \
  tests/operation.c \
  tests/operation.h \
  tests/reference.c \
  tests/reference.h \
  tests/scenario.c \
  tests/scenario.h \
  tests/suite.c \
  tests/suite.h

test_programs = \
  tests/test_alltoallv \
  tests/test_arguments \
  tests/test_backward \
  tests/test_big \
  tests/test_combine \
  tests/test_dispatch \
  tests/test_fatal \
  tests/test_faults \
  tests/test_finalize \
  tests/test_hints \
  tests/test_killed \
  tests/test_lifetime \
  tests/test_mismatch \
  tests/test_profiling \
  tests/test_progress \
  tests/test_route \
  tests/test_shm_space \
  tests/test_stall \
  tests/test_threads \
  tests/test_transports
suite_ldadd = tests/libsuite.la libepx.la $(CHECK_LIBS) $(MPI_LIBS) -lm

tests_test_alltoallv_CPPFLAGS = $(suite_cppflags)
tests_test_alltoallv_LDADD = $(suite_ldadd)

tests_test_arguments_CPPFLAGS = $(suite_cppflags)
tests_test_arguments_LDADD = $(suite_ldadd)

tests_test_backward_CPPFLAGS = $(suite_cppflags)
tests_test_backward_LDADD = $(suite_ldadd)

tests_test_big_CPPFLAGS = $(suite_cppflags)
tests_test_big_LDADD = $(suite_ldadd)

tests_test_combine_CPPFLAGS = $(suite_cppflags)
tests_test_combine_LDADD = $(suite_ldadd)

tests_test_dispatch_CPPFLAGS = $(suite_cppflags)
tests_test_dispatch_LDADD = $(suite_ldadd)

tests_test_fatal_LDADD = libepx.la $(MPI_LIBS)

tests_test_faults_CPPFLAGS = $(suite_cppflags)
tests_test_faults_LDADD = $(suite_ldadd)

tests_test_finalize_CPPFLAGS = $(suite_cppflags)
tests_test_finalize_LDADD = $(suite_ldadd)

tests_test_hints_CPPFLAGS = $(suite_cppflags)
tests_test_hints_LDADD = $(suite_ldadd)

tests_test_killed_CPPFLAGS = $(suite_cppflags)
tests_test_killed_LDADD = $(suite_ldadd)

tests_test_lifetime_LDADD = libepx.la $(MPI_LIBS)

tests_test_mismatch_CPPFLAGS = $(suite_cppflags)
tests_test_mismatch_LDADD = $(suite_ldadd)

tests_test_profiling_CPPFLAGS = $(suite_cppflags)
tests_test_profiling_SOURCES = tests/test_profiling.c tests/profile_tool.h
tests_test_profiling_LDADD = $(suite_ldadd)

# A preloaded tool; the shell that starts the program is given it too, so it binds when called.
if HAVE_PROFILE_TOOL
check_LTLIBRARIES += tests/profile_tool.la
endif
tests_profile_tool_la_SOURCES = tests/profile_tool.c tests/profile_tool.h
tests_profile_tool_la_LDFLAGS = -module -shared -avoid-version -rpath $(abs_builddir)/tests \
  -Wl,-z,lazy

tests_test_progress_CPPFLAGS = $(suite_cppflags)
tests_test_progress_LDADD = $(suite_ldadd)

tests_test_route_CPPFLAGS = $(suite_cppflags)
tests_test_route_LDADD = $(suite_ldadd)

tests_test_shm_space_CPPFLAGS = $(suite_cppflags)
tests_test_shm_space_LDADD = $(suite_ldadd)

tests_test_stall_CPPFLAGS = $(suite_cppflags)
tests_test_stall_LDADD = $(suite_ldadd)

tests_test_threads_CPPFLAGS = $(suite_cppflags)
tests_test_threads_LDADD = $(suite_ldadd)

tests_test_transports_CPPFLAGS = $(suite_cppflags)
tests_test_transports_LDADD = $(suite_ldadd)

unit_programs = \
  tests/unit_element \
  tests/unit_log \
  tests/unit_memory \
  tests/unit_param \
  tests/unit_plan \
  tests/unit_progress \
  tests/unit_ready \
  tests/unit_reference \
  tests/unit_request \
  tests/unit_ring \
  tests/unit_rows \
  tests/unit_stats \
  tests/unit_status

# Kernels against their host twins.
if HAVE_CUDA
check_PROGRAMS += $(cuda_programs)
endif
cuda_programs = tests/unit_count_pairs
tests_unit_count_pairs_CPPFLAGS = $(unit_cppflags) $(CUDA_CPPFLAGS) \
  -DEPX_CUDA_MODULE='"$(abs_builddir)/.libs/libepx_cuda.so"'
tests_unit_count_pairs_LDADD = $(unit_ldadd) $(CUDA_LIBS)

# The library's inside is not exported: unit tests link it as a whole.
unit_cppflags = $(suite_cppflags) -I$(top_srcdir)/src
unit_ldadd = tests/libsuite.la libepx_core.la $(CHECK_LIBS) $(MPI_LIBS) -lm

tests_unit_element_CPPFLAGS = $(unit_cppflags)
tests_unit_element_LDADD = $(unit_ldadd)

tests_unit_log_CPPFLAGS = $(unit_cppflags)
tests_unit_log_LDADD = $(unit_ldadd)

tests_unit_memory_CPPFLAGS = $(unit_cppflags)
tests_unit_memory_LDADD = $(unit_ldadd)

tests_unit_param_CPPFLAGS = $(unit_cppflags)
tests_unit_param_LDADD = $(unit_ldadd)

tests_unit_plan_CPPFLAGS = $(unit_cppflags)
tests_unit_plan_LDADD = $(unit_ldadd)

tests_unit_progress_CPPFLAGS = $(unit_cppflags)
tests_unit_progress_LDADD = $(unit_ldadd)

tests_unit_ready_CPPFLAGS = $(unit_cppflags)
tests_unit_ready_LDADD = $(unit_ldadd)

tests_unit_reference_CPPFLAGS = $(unit_cppflags)
tests_unit_reference_LDADD = $(unit_ldadd)

tests_unit_request_CPPFLAGS = $(unit_cppflags)
tests_unit_request_LDADD = $(unit_ldadd)

tests_unit_ring_CPPFLAGS = $(unit_cppflags)
tests_unit_ring_LDADD = $(unit_ldadd)

tests_unit_rows_CPPFLAGS = $(unit_cppflags)
tests_unit_rows_LDADD = $(unit_ldadd)

tests_unit_stats_CPPFLAGS = $(unit_cppflags)
tests_unit_stats_LDADD = $(unit_ldadd)

tests_unit_status_CPPFLAGS = $(unit_cppflags)
tests_unit_status_LDADD = $(unit_ldadd)

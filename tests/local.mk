# SPDX-License-Identifier: BSD-3-Clause
# The harness, the matrix of runs (tests/testlist), and how programs see the library; each folder
# names its own files.
TEST_EXTENSIONS = .sh .mpi .pml
AM_TESTS_ENVIRONMENT = \
  MPIEXEC='$(MPIEXEC)'; export MPIEXEC; \
  SANITIZER='$(SANITIZER)'; export SANITIZER; \
  VALGRIND='$(VALGRIND)'; export VALGRIND; \
  srcdir='$(srcdir)'; export srcdir; \
  CC='$(CC)'; export CC; \
  CXX='$(CXX)'; export CXX; \
  NM='$(NM)'; export NM; \
  PYTHON='$(PYTHON)'; export PYTHON; \
  LIBTOOL='$(LIBTOOL)'; export LIBTOOL; \
  MPI_CFLAGS='$(MPI_CFLAGS)'; export MPI_CFLAGS; \
  MPI_LIBS='$(MPI_LIBS)'; export MPI_LIBS;
SH_LOG_COMPILER = $(SHELL)
MPI_LOG_COMPILER = $(SHELL) $(srcdir)/tests/run
timed_driver = $(SHELL) $(srcdir)/tests/timed $(top_srcdir)/build-aux/test-driver
SH_LOG_DRIVER = $(timed_driver)
MPI_LOG_DRIVER = $(timed_driver)
PML_LOG_DRIVER = $(timed_driver)

EXTRA_DIST += \
  tests/leftovers \
  tests/lsan.supp \
  tests/run \
  tests/short \
  tests/testlist \
  tests/timed \
  tests/tsan.supp \
  tests/turns.awk \
  tests/valgrind.supp

# Every line of the matrix is a test of its own, listed by configure; an empty file names it.
if HAVE_CHECK
TESTS += @TEST_MATRIX@
check_PROGRAMS += $(test_programs)
endif
CLEANFILES += $(TEST_MATRIX) gpus.lock hosts.lock

$(TEST_MATRIX): $(srcdir)/tests/testlist
	@$(MKDIR_P) tests
	@: >$@

# Headers of the tests are spelled from tests/, those of the library from src/. Tests link the
# library as users do, or, to see its inside, which is not exported, as a whole.
tests_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
suite_cppflags = $(tests_cppflags) $(CHECK_CFLAGS)
suite_ldadd = tests/support/libsuite.la libepx.la $(CHECK_LIBS) $(MPI_LIBS) -lm
unit_cppflags = $(suite_cppflags) -I$(top_srcdir)/src
unit_ldadd = tests/support/libsuite.la libepx_core.la libepx_mpi_parts.la $(CHECK_LIBS) \
  $(MPI_LIBS) -lm

# Kernels of the tests spell headers in the same way.
tests/%.lo: EPX_NVCCFLAGS += -I$(top_srcdir)/tests
cu_depends += tests/*/*.cu.d tests/*/*/*.cu.d

test_programs =
include tests/lint/local.mk
include tests/fortran/local.mk
include tests/pages/local.mk
include tests/abi/local.mk
include tests/support/local.mk
include tests/pretend/local.mk
include tests/emulation/local.mk
include tests/suite/local.mk
include tests/health/local.mk
include tests/exchange/local.mk
include tests/fields/local.mk
include tests/control/local.mk
include tests/faults/local.mk
include tests/unit/local.mk
include tests/fuzz/local.mk
include tests/model/local.mk
include tests/petsc/local.mk
include tests/tools/local.mk

# The lints look at the sources and at the library.
lint: all-am
	$(MAKE) $(AM_MAKEFLAGS) check-TESTS TESTS='$(lints)' check_PROGRAMS= check_LTLIBRARIES=

# Enough to try another MPI or compiler by: no more ranks than a small machine has cores, and not
# those tests that wait for time-outs or fill the memory.
short_tests = $(lints) tests/fortran/check_fortran.sh tests/abi/check_abi.sh $(page_checks) \
  $(filter-out tests/test_big-% tests/test_inject-% tests/test_mismatch-% tests/test_stall-% \
    tests/test_stopped-% tests/soak_faults-%, \
    $(filter %-2.mpi,$(TEST_MATRIX)))

check-short:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(short_tests)'

# The tier for CI has all tests, but models without their long runs, and slow tests in Python with
# every third choice of their parameters. Where a line of the matrix has three numbers of ranks or
# more, each transport of hosts takes the numbers of its turn, and no two programs in a row begin
# with the same turn: turns.awk. Eight ranks are for check-full, where their line has fewer, too.
# Other lines that CI leaves out are named by tests/short.
ci_turns = 1,4 2 3
ci_tests = $(filter-out $(TEST_MATRIX),$(TESTS)) \
  `sh $(srcdir)/tests/short $(srcdir) ci '$(ci_turns)'`

check-ci:
	MODEL_LONG=no PYTHON_EVERY=3 $(MAKE) check TESTS="$(ci_tests)"

# Before an issue is resolved: the whole product.
check-full: check

# Runs of a few minutes, each for a build of its own kind, which compiles no other programs of the
# tests. tests/short picks the lines of the matrix. The plus hands the jobs of make on.
picked = $(shell sh $(srcdir)/tests/short $(srcdir) $(1))
programs_of = $(sort $(foreach test,$(1),\
  $(filter %/$(firstword $(subst -, ,$(notdir $(test:.mpi=)))),$(check_PROGRAMS))))
check_picked = $(MAKE) check TESTS='$(call picked,$(1)) $(2)' \
  check_PROGRAMS='$(call programs_of,$(call picked,$(1)))'

check-brief:
	+$(call check_picked,brief)

check-valgrind:
	+$(call check_picked,valgrind) VALGRIND='valgrind'

# What another MPI changes: transports and control over it, handles, launchers.
check-mpi:
	+$(call check_picked,mpi,tests/fortran/check_fortran.sh tests/abi/check_abi.sh)

# In a build whose CUDA is that of tests/emulation; with TIER=ci fewer, as those below.
emulated_checks = tests/tools/check_perf_error.sh tests/tools/check_sweep.sh
check-emulated:
	+PATH=$(dir $(NVCC)):$$PATH $(call check_picked,emulated $(TIER),$(emulated_checks))

# Such a build with --enable-jitter: threads run in a random order, which the seed fixes.
check-jitter:
	+PATH=$(dir $(NVCC)):$$PATH EMULATION_SEED=1 $(call check_picked,jitter $(TIER))

# For contrib/run-tests, which counts them, and .ci/run.
list-tests:
	@echo $(TESTS)

list-ci:
	@echo "$(ci_tests)"

list-lints:
	@echo $(lints)

# What each test of the last runs took.
list-times:
	@$(SHELL) $(srcdir)/tests/timed --list .

.PHONY: lint check-short check-brief check-valgrind check-mpi check-emulated check-jitter check-ci \
  check-full list-tests list-ci list-lints list-times

# SPDX-License-Identifier: BSD-3-Clause
# The test programs, the matrix of their runs (tests/testlist), and the lints.
TEST_EXTENSIONS = .sh .mpi
AM_TESTS_ENVIRONMENT = \
  MPIEXEC='$(MPIEXEC)'; export MPIEXEC; \
  SANITIZER='$(SANITIZER)'; export SANITIZER; \
  VALGRIND='$(VALGRIND)'; export VALGRIND; \
  srcdir='$(srcdir)'; export srcdir; \
  CC='$(CC)'; export CC; \
  CXX='$(CXX)'; export CXX; \
  NM='$(NM)'; export NM; \
  LIBTOOL='$(LIBTOOL)'; export LIBTOOL; \
  MPI_CFLAGS='$(MPI_CFLAGS)'; export MPI_CFLAGS; \
  MPI_LIBS='$(MPI_LIBS)'; export MPI_LIBS;
SH_LOG_COMPILER = $(SHELL)
MPI_LOG_COMPILER = $(SHELL) $(srcdir)/tests/run

EXTRA_DIST += tests/run tests/testlist \
  tests/lsan.supp tests/tsan.supp tests/valgrind.supp tests/short

# Every line of the matrix is a test of its own, listed by configure; an empty file names it.
if HAVE_CHECK
TESTS += @TEST_MATRIX@
check_PROGRAMS += $(test_programs)
endif
CLEANFILES += $(TEST_MATRIX) gpus.lock

$(TEST_MATRIX): $(srcdir)/tests/testlist
	@$(MKDIR_P) tests
	@: >$@

# Enough to try another MPI or compiler by: no more ranks than a small machine has cores, and not
# those tests that wait for time-outs or fill the memory.
short_tests = $(lints) tests/fortran/check_fortran.sh \
  $(filter-out tests/test_big-% tests/test_inject-% tests/test_mismatch-% tests/test_stall-%, \
    $(filter %-2.mpi,$(TEST_MATRIX)))

check-short:
	$(MAKE) $(AM_MAKEFLAGS) check TESTS='$(short_tests)'

.PHONY: check-short

# Headers of the tests are spelled from tests/, those of the library from src/. Tests link the
# library as users do, or, to see its inside, which is not exported, as a whole.
tests_cppflags = $(AM_CPPFLAGS) -I$(top_srcdir)/tests
suite_cppflags = $(tests_cppflags) $(CHECK_CFLAGS)
suite_ldadd = tests/support/libsuite.la libepx.la $(CHECK_LIBS) $(MPI_LIBS) -lm
unit_cppflags = $(suite_cppflags) -I$(top_srcdir)/src
unit_ldadd = tests/support/libsuite.la libepx_core.la $(CHECK_LIBS) $(MPI_LIBS) -lm
tests/%.lo: EPX_NVCCFLAGS += -I$(top_srcdir)/tests
cu_depends += tests/*/*.cu.d tests/*/*/*.cu.d

test_programs =
include tests/lint/local.mk
include tests/fortran/local.mk
include tests/support/local.mk
include tests/pretend/local.mk
include tests/suite/local.mk
include tests/faults/local.mk
include tests/unit/local.mk

# The fuzz target: replayed over its corpus by `make check' with any compiler; `make fuzz' lets
# clang's libFuzzer look for more, from the corpus, into fuzz/ of the build. A fault stops it and
# leaves the input in fuzz/.
check_PROGRAMS += tests/fuzz_replay
EXTRA_DIST += tests/corpus
tests_fuzz_replay_SOURCES = tests/fuzz_api.c tests/fuzz.h tests/fuzz_replay.c
tests_fuzz_replay_LDADD = libepx.la $(MPI_LIBS)

FUZZ_SECONDS = 60
FUZZ_CC = clang
FUZZ_CFLAGS = -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all
fuzz_sources = $(filter %.c,$(libepx_core_la_SOURCES)) tests/fuzz_api.c

fuzz/fuzz_api: $(addprefix $(srcdir)/,$(fuzz_sources))
	@$(MKDIR_P) fuzz
	$(FUZZ_CC) $(FUZZ_CFLAGS) -ffp-contract=off $(DEFAULT_INCLUDES) $(libepx_core_la_CPPFLAGS) \
	  -o $@ $^ $(MPI_LIBS) -lpthread -lrt -ldl

.PHONY: fuzz
fuzz: fuzz/fuzz_api
	@$(MKDIR_P) fuzz/found
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0 \
	  fuzz/fuzz_api -max_total_time=$(FUZZ_SECONDS) -max_len=512 -timeout=60 -handle_xfsz=0 \
	  -close_fd_mask=2 -print_final_stats=1 -artifact_prefix=fuzz/ fuzz/found \
	  $(srcdir)/tests/corpus

clean-local: clean-fuzz
clean-fuzz:
	rm -rf fuzz
.PHONY: clean-fuzz

# Runs of a few minutes for builds that are slow. tests/short picks them from the matrix.
.PHONY: check-brief check-valgrind
check-brief:
	$(MAKE) check TESTS="`sh $(srcdir)/tests/short $(srcdir)`"

check-valgrind:
	$(MAKE) check VALGRIND='valgrind' TESTS="`sh $(srcdir)/tests/short $(srcdir) valgrind`"

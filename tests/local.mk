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

lints = \
  tests/lint/lint_layers.sh \
  tests/lint/lint_vendors.sh \
  tests/lint/lint_circles.sh \
  tests/lint/lint_functions.sh \
  tests/lint/lint_folders.sh \
  tests/lint/lint_text.sh \
  tests/lint/lint_format.sh \
  tests/lint/planted.sh \
  tests/lint_man.sh \
  tests/lint_headers.sh \
  tests/lint_inject.sh \
  tests/lint_exports.sh \
  tests/lint_readme.sh
lint_programs = tests/lint/sources.awk tests/lint/c.awk tests/lint/functions.awk
EXTRA_DIST += $(lint_programs) .clang-format
TESTS += $(lints) tests/check_fortran.sh
EXTRA_DIST += $(lints) tests/check_fortran.sh tests/fortran.F90
EXTRA_DIST += tests/run tests/pretend_host tests/simulated_nodes tests/testlist \
  tests/lsan.supp tests/tsan.supp tests/valgrind.supp tests/short

# Every line of the matrix is a test of its own, listed by configure; an empty file names it.
if HAVE_CHECK
TESTS += @TEST_MATRIX@
check_LTLIBRARIES += tests/libsuite.la tests/libtwins.la
check_PROGRAMS += $(test_programs) $(unit_programs)
endif
CLEANFILES += $(TEST_MATRIX) gpus.lock

$(TEST_MATRIX): $(srcdir)/tests/testlist
	@$(MKDIR_P) tests
	@: >$@

# Enough to try another MPI or compiler by: no more ranks than a small machine has cores, and not
# those tests that wait for time-outs or fill the memory.
short_tests = $(lints) tests/check_fortran.sh \
  $(filter-out tests/test_big-% tests/test_inject-% tests/test_mismatch-% tests/test_stall-%, \
    $(filter %-2.mpi,$(TEST_MATRIX)))

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
  tests/space.h \
  tests/suite.c \
  tests/suite.h
if HAVE_CUDA
tests_libsuite_la_CPPFLAGS += $(vendor_cppflags)
tests_libsuite_la_SOURCES += tests/gpu.cu tests/gpu.h tests/space_cuda.c
tests_libsuite_la_LIBADD = $(CUDA_LIBS)
else
tests_libsuite_la_SOURCES += tests/space_host.c
endif

test_programs = \
  tests/soak \
  tests/test_alltoallv \
  tests/test_arguments \
  tests/test_backward \
  tests/test_big \
  tests/test_combine \
  tests/test_cut \
  tests/test_dispatch \
  tests/test_fatal \
  tests/test_faults \
  tests/test_finalize \
  tests/test_hints \
  tests/test_inject \
  tests/test_killed \
  tests/test_lifetime \
  tests/test_memory \
  tests/test_mismatch \
  tests/test_profiling \
  tests/test_progress \
  tests/test_route \
  tests/test_shm_space \
  tests/test_stall \
  tests/test_threads \
  tests/test_transports \
  tests/test_twins
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

tests_test_cut_CPPFLAGS = $(suite_cppflags)
tests_test_cut_LDADD = $(suite_ldadd)

tests_test_dispatch_CPPFLAGS = $(suite_cppflags)
tests_test_dispatch_LDADD = $(suite_ldadd)

tests_test_fatal_LDADD = libepx.la $(MPI_LIBS)

tests_test_faults_CPPFLAGS = $(suite_cppflags)
tests_test_faults_LDADD = $(suite_ldadd)

tests_test_finalize_CPPFLAGS = $(suite_cppflags)
tests_test_finalize_LDADD = $(suite_ldadd)

tests_test_hints_CPPFLAGS = $(suite_cppflags)
tests_test_hints_LDADD = $(suite_ldadd)

# Stands between the library's inside and what it calls.
tests_test_inject_SOURCES = tests/test_inject.c tests/inject.c tests/inject.h
tests_test_inject_CPPFLAGS = $(unit_cppflags)
tests_test_inject_LDADD = $(unit_ldadd)
tests_test_inject_LDFLAGS = -Wl,--wrap=malloc,--wrap=calloc,--wrap=posix_memalign,--wrap=free \
  -Wl,--wrap=mmap,--wrap=munmap,--wrap=shm_open,--wrap=ftruncate,--wrap=posix_fallocate \
  -Wl,--wrap=pthread_create,--wrap=dlopen

tests_test_killed_CPPFLAGS = $(suite_cppflags)
tests_test_killed_LDADD = $(suite_ldadd)

tests_test_lifetime_CPPFLAGS = $(suite_cppflags)
tests_test_lifetime_LDADD = $(suite_ldadd)

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

tests_test_twins_CPPFLAGS = $(suite_cppflags)
tests_test_twins_LDADD = $(suite_ldadd)

# These see every allocation of the library, which is linked as a whole.
allocation_sources = tests/allocation.c tests/allocation.h
allocation_ldflags = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc \
  -Wl,--wrap=posix_memalign -Wl,--wrap=free -Wl,--wrap=mmap -Wl,--wrap=munmap \
  -Wl,--wrap=posix_fallocate

soak_sources = tests/soak.c tests/soak.h
tests_soak_SOURCES = $(soak_sources) tests/soak_host.c $(allocation_sources)
tests_soak_CPPFLAGS = $(suite_cppflags)
tests_soak_LDFLAGS = $(allocation_ldflags)
tests_soak_LDADD = $(unit_ldadd)

# make check takes a few hundred of these steps.
soak: tests/soak
	SOAK_STEPS=$${SOAK_STEPS-10000} TIMEOUT_S=$${TIMEOUT_S-7200} MPIEXEC='$(MPIEXEC)' \
	  $(SHELL) $(srcdir)/tests/run tests/soak-4.mpi
.PHONY: soak

tests_test_memory_SOURCES = tests/test_memory.c $(allocation_sources)
tests_test_memory_CPPFLAGS = $(suite_cppflags) -DEPX_MANUAL='"$(abs_srcdir)/man/epx.7.in"'
tests_test_memory_LDFLAGS = $(allocation_ldflags)
tests_test_memory_LDADD = $(unit_ldadd)

unit_programs = \
  tests/unit_element \
  tests/unit_exchange \
  tests/unit_kernels \
  tests/unit_letters \
  tests/unit_links \
  tests/unit_log \
  tests/unit_memory \
  tests/unit_nodes \
  tests/unit_param \
  tests/unit_plan \
  tests/unit_progress \
  tests/unit_ready \
  tests/unit_reference \
  tests/unit_request \
  tests/unit_ring \
  tests/unit_rows \
  tests/unit_stage_stores \
  tests/unit_stats \
  tests/unit_status \
  tests/unit_tiers

# Kernels against their host twins, and what needs CUDA's headers.
if HAVE_CUDA
check_PROGRAMS += $(cuda_programs)
endif
cuda_programs = tests/soak_device tests/test_device tests/unit_count_pairs tests/unit_ipc \
  tests/unit_proxy
tests_soak_device_SOURCES = tests/soak_device.c $(soak_sources)
tests_soak_device_CPPFLAGS = $(suite_cppflags) $(vendor_cppflags)
tests_soak_device_LDADD = $(suite_ldadd) $(CUDA_LIBS)
tests_test_device_CPPFLAGS = $(suite_cppflags) $(vendor_cppflags)
tests_test_device_LDADD = $(suite_ldadd) $(CUDA_LIBS)
tests_unit_count_pairs_CPPFLAGS = $(unit_cppflags) $(CUDA_CPPFLAGS) \
  -DEPX_CUDA_MODULE='"$(abs_builddir)/.libs/libepx_cuda.so"'
tests_unit_count_pairs_LDADD = $(unit_ldadd) $(CUDA_LIBS)

# The device's side of messages through the host, over calls of CUDA that are pretended: they come
# before those of the runtime, which the suite is linked with.
if HAVE_CUDA
if HAVE_UCX
check_PROGRAMS += tests/unit_bounce tests/unit_ucx_device
endif
endif
own_windows = src/transport/cuda/device_windows.c src/transport/cuda/device_ranks.c \
  src/transport/cuda/device_scope.c
device_messages = tests/device_messages.c tests/device_messages.h \
  tests/pretend_copies.c tests/pretend_copies.h
tests_unit_bounce_SOURCES = tests/unit_bounce.c $(device_messages) \
  src/transport/cuda/transport_bounce.c src/transport/cuda/bounce_rounds.c $(own_windows)
tests_unit_bounce_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_bounce_LDADD = $(unit_ldadd)
tests_unit_bounce_LDFLAGS = -Wl,-z,muldefs
tests_unit_ucx_device_SOURCES = tests/unit_ucx_device.c $(device_messages) \
  src/transport/ucx/transport_ucx_device.c src/transport/ucx/ucx_exchange.c $(own_windows)
tests_unit_ucx_device_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_ucx_device_LDADD = $(unit_ldadd)
tests_unit_ucx_device_LDFLAGS = -Wl,-z,muldefs

# Windows that CUDA maps between processes, likewise.
tests_unit_ipc_SOURCES = tests/unit_ipc.c tests/pretend_copies.c tests/pretend_copies.h \
  tests/pretend_ipc.c tests/pretend_ipc.h \
  src/transport/cuda/transport_ipc.c src/transport/cuda/peer_windows.c \
  src/transport/cuda/device_ranks.c src/transport/cuda/device_scope.c
tests_unit_ipc_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_ipc_LDADD = $(unit_ldadd)
tests_unit_ipc_LDFLAGS = -Wl,-z,muldefs

# The module's proxy over CUDA calls of its own, so it needs no GPU. They come before those of the
# runtime library, which the suite links.
tests_unit_proxy_SOURCES = tests/unit_proxy.c tests/pretend_streams.c tests/pretend_streams.h \
  src/coll/device/proxy.c src/transport/cuda/device_scope.c
tests_unit_proxy_CPPFLAGS = $(unit_cppflags) $(vendor_cppflags)
tests_unit_proxy_LDFLAGS = -Wl,-z,muldefs
tests_unit_proxy_LDADD = $(unit_ldadd)

# The library's inside is not exported: unit tests link it as a whole.
unit_cppflags = $(suite_cppflags) -I$(top_srcdir)/src
unit_ldadd = tests/libsuite.la libepx_core.la $(CHECK_LIBS) $(MPI_LIBS) -lm

tests_unit_element_CPPFLAGS = $(unit_cppflags)
tests_unit_element_LDADD = $(unit_ldadd)

# The device runs there what the host runs in the test.
tests_libtwins_la_CPPFLAGS = $(unit_cppflags)
tests_libtwins_la_SOURCES = tests/twins.h
if HAVE_CUDA
tests_libtwins_la_SOURCES += tests/twins.cu
tests_libtwins_la_LIBADD = $(CUDA_LIBS)
else
tests_libtwins_la_SOURCES += tests/twins_host.c
endif
tests_unit_kernels_CPPFLAGS = $(unit_cppflags)
tests_unit_kernels_LDADD = tests/libtwins.la $(unit_ldadd)

tests_unit_letters_CPPFLAGS = $(unit_cppflags)
tests_unit_letters_LDADD = $(unit_ldadd)

tests_unit_links_CPPFLAGS = $(unit_cppflags)
tests_unit_links_LDADD = $(unit_ldadd)

tests_unit_log_CPPFLAGS = $(unit_cppflags)
tests_unit_log_LDADD = $(unit_ldadd)

tests_unit_memory_CPPFLAGS = $(unit_cppflags)
tests_unit_memory_LDADD = $(unit_ldadd)

# Of the module for CUDA, but it needs none.
tests_unit_nodes_SOURCES = tests/unit_nodes.c src/coll/device/device_nodes.c
tests_unit_nodes_CPPFLAGS = $(unit_cppflags)
tests_unit_nodes_LDADD = $(unit_ldadd)

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

tests_unit_stage_stores_CPPFLAGS = $(unit_cppflags)
tests_unit_stage_stores_LDADD = $(unit_ldadd)

tests_unit_exchange_CPPFLAGS = $(unit_cppflags)
tests_unit_exchange_LDADD = $(unit_ldadd)

tests_unit_stats_CPPFLAGS = $(unit_cppflags)
tests_unit_stats_LDADD = $(unit_ldadd)

tests_unit_status_CPPFLAGS = $(unit_cppflags)
tests_unit_status_LDADD = $(unit_ldadd)

tests_unit_tiers_CPPFLAGS = $(unit_cppflags)
tests_unit_tiers_LDADD = $(unit_ldadd)

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

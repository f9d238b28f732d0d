# SPDX-License-Identifier: BSD-3-Clause
# What goes wrong: wrong arguments, ranks that disagree, stall or die, memory that is short; and how
# a test finds what a run leaves behind.
TESTS += tests/faults/check_leftovers.sh
EXTRA_DIST += tests/faults/check_leftovers.sh
test_programs += \
  tests/faults/soak_faults \
  tests/faults/test_arguments \
  tests/faults/test_cut \
  tests/faults/test_ended \
  tests/faults/test_fatal \
  tests/faults/test_faults \
  tests/faults/test_finalize \
  tests/faults/test_fork \
  tests/faults/test_huge \
  tests/faults/test_inject \
  tests/faults/test_interrupted \
  tests/faults/test_killed \
  tests/faults/test_lifetime \
  tests/faults/test_mismatch \
  tests/faults/test_shm_space \
  tests/faults/test_shortage \
  tests/faults/test_stall \
  tests/faults/test_stopped \
  tests/faults/test_unload

board_sources = tests/faults/board.c tests/faults/board.h

tests_faults_soak_faults_SOURCES = tests/faults/soak_faults.c $(board_sources) \
  tests/fields/fields.c tests/fields/fields.h
tests_faults_soak_faults_CPPFLAGS = $(suite_cppflags)
tests_faults_soak_faults_LDADD = $(suite_ldadd)

tests_faults_test_arguments_CPPFLAGS = $(suite_cppflags)
tests_faults_test_arguments_LDADD = $(suite_ldadd)

tests_faults_test_cut_CPPFLAGS = $(suite_cppflags)
tests_faults_test_cut_LDADD = $(suite_ldadd)

# These two stand between the library's inside and calls for shared memory.
tests_faults_test_ended_CPPFLAGS = $(suite_cppflags)
tests_faults_test_ended_LDADD = $(unit_ldadd)
tests_faults_test_ended_LDFLAGS = -Wl,--wrap=shm_open,--wrap=posix_fallocate

tests_faults_test_fatal_LDADD = libepx.la $(MPI_LIBS)

tests_faults_test_faults_CPPFLAGS = $(suite_cppflags)
tests_faults_test_faults_LDADD = $(suite_ldadd)

tests_faults_test_finalize_CPPFLAGS = $(suite_cppflags)
tests_faults_test_finalize_LDADD = $(suite_ldadd)

tests_faults_test_fork_CPPFLAGS = $(suite_cppflags)
tests_faults_test_fork_LDADD = $(suite_ldadd)

tests_faults_test_huge_CPPFLAGS = $(suite_cppflags)
tests_faults_test_huge_LDADD = $(suite_ldadd)

# inject.c stands between the library's inside and what it calls.
tests_faults_test_inject_SOURCES = tests/faults/test_inject.c \
  tests/faults/inject.c tests/faults/inject.h
tests_faults_test_inject_CPPFLAGS = $(unit_cppflags)
tests_faults_test_inject_LDADD = $(unit_ldadd)
tests_faults_test_inject_LDFLAGS = \
  -Wl,--wrap=malloc,--wrap=calloc,--wrap=posix_memalign,--wrap=free \
  -Wl,--wrap=mmap,--wrap=munmap,--wrap=shm_open,--wrap=posix_fallocate \
  -Wl,--wrap=pthread_create,--wrap=dlopen \
  -Wl,--wrap=socket,--wrap=accept4,--wrap=epoll_create1

tests_faults_test_interrupted_CPPFLAGS = $(suite_cppflags)
tests_faults_test_interrupted_LDADD = $(unit_ldadd)
tests_faults_test_interrupted_LDFLAGS = -Wl,--wrap=posix_fallocate

tests_faults_test_killed_SOURCES = tests/faults/test_killed.c $(board_sources)
tests_faults_test_killed_CPPFLAGS = $(suite_cppflags)
tests_faults_test_killed_LDADD = $(suite_ldadd)

tests_faults_test_lifetime_CPPFLAGS = $(suite_cppflags)
tests_faults_test_lifetime_LDADD = $(suite_ldadd)

tests_faults_test_mismatch_CPPFLAGS = $(suite_cppflags)
tests_faults_test_mismatch_LDADD = $(suite_ldadd)

tests_faults_test_shm_space_CPPFLAGS = $(suite_cppflags)
tests_faults_test_shm_space_LDADD = $(suite_ldadd)

tests_faults_test_shortage_CPPFLAGS = $(unit_cppflags)
tests_faults_test_shortage_LDADD = $(unit_ldadd)

tests_faults_test_stall_CPPFLAGS = $(suite_cppflags)
tests_faults_test_stall_LDADD = $(suite_ldadd)

tests_faults_test_stopped_SOURCES = tests/faults/test_stopped.c $(board_sources) \
  tests/faults/inject.c tests/faults/inject.h
tests_faults_test_stopped_CPPFLAGS = $(unit_cppflags)
tests_faults_test_stopped_LDADD = $(unit_ldadd)
tests_faults_test_stopped_LDFLAGS = $(tests_faults_test_inject_LDFLAGS)

tests_faults_test_unload_CPPFLAGS = $(AM_CPPFLAGS) \
  -DEPX_LIBRARY='"$(abs_builddir)/.libs/libepx.so.0"'
tests_faults_test_unload_LDADD = $(MPI_LIBS) -ldl

# SPDX-License-Identifier: BSD-3-Clause
# What every transport must do.
test_programs += \
  tests/suite/soak \
  tests/suite/test_alltoallv \
  tests/suite/test_backward \
  tests/suite/test_big \
  tests/suite/test_combine \
  tests/suite/test_dispatch \
  tests/suite/test_hints \
  tests/suite/test_memory \
  tests/suite/test_profiling \
  tests/suite/test_progress \
  tests/suite/test_route \
  tests/suite/test_route_dispatch \
  tests/suite/test_threads \
  tests/suite/test_transports \
  tests/suite/test_twins
if HAVE_CUDA
test_programs += \
  tests/suite/soak_device \
  tests/suite/test_device \
  tests/suite/test_phases
soaks_of_devices = tests/suite/soak_device
endif

tests_suite_test_alltoallv_CPPFLAGS = $(suite_cppflags)
tests_suite_test_alltoallv_LDADD = $(suite_ldadd)

tests_suite_test_backward_CPPFLAGS = $(suite_cppflags)
tests_suite_test_backward_LDADD = $(suite_ldadd)

tests_suite_test_big_CPPFLAGS = $(suite_cppflags)
tests_suite_test_big_LDADD = $(suite_ldadd)

tests_suite_test_combine_CPPFLAGS = $(suite_cppflags)
tests_suite_test_combine_LDADD = $(suite_ldadd)

tests_suite_test_device_CPPFLAGS = $(suite_cppflags) $(vendor_cppflags)
tests_suite_test_device_LDADD = $(suite_ldadd) $(CUDA_LIBS)

tests_suite_test_dispatch_CPPFLAGS = $(suite_cppflags)
tests_suite_test_dispatch_LDADD = $(suite_ldadd)

tests_suite_test_hints_CPPFLAGS = $(suite_cppflags)
tests_suite_test_hints_LDADD = $(suite_ldadd)

tests_suite_test_phases_CPPFLAGS = $(suite_cppflags) $(vendor_cppflags)
tests_suite_test_phases_LDADD = $(suite_ldadd) $(CUDA_LIBS)

tests_suite_test_profiling_SOURCES = tests/suite/test_profiling.c tests/suite/profile_tool.h
tests_suite_test_profiling_CPPFLAGS = $(suite_cppflags)
tests_suite_test_profiling_LDADD = $(suite_ldadd)

# A preloaded tool. The shell that starts the program loads it too, so its symbols may bind only
# when they are called.
if HAVE_PROFILE_TOOL
check_LTLIBRARIES += tests/suite/profile_tool.la
endif
tests_suite_profile_tool_la_SOURCES = tests/suite/profile_tool.c tests/suite/profile_tool.h
tests_suite_profile_tool_la_CPPFLAGS = $(tests_cppflags)
tests_suite_profile_tool_la_LDFLAGS = -module -shared -avoid-version \
  -rpath $(abs_builddir)/tests/suite -Wl,-z,lazy

tests_suite_test_progress_CPPFLAGS = $(suite_cppflags)
tests_suite_test_progress_LDADD = $(suite_ldadd)

tests_suite_test_route_CPPFLAGS = $(suite_cppflags)
tests_suite_test_route_LDADD = $(suite_ldadd)

tests_suite_test_route_dispatch_CPPFLAGS = $(suite_cppflags)
tests_suite_test_route_dispatch_LDADD = $(suite_ldadd)

tests_suite_test_threads_CPPFLAGS = $(suite_cppflags)
tests_suite_test_threads_LDADD = $(suite_ldadd)

tests_suite_test_transports_CPPFLAGS = $(suite_cppflags)
tests_suite_test_transports_LDADD = $(suite_ldadd)

tests_suite_test_twins_CPPFLAGS = $(suite_cppflags)
tests_suite_test_twins_LDADD = $(suite_ldadd)

# These programs see every allocation of the library, which is linked as a whole.
allocation_sources = tests/suite/allocation.c tests/suite/allocation.h
allocation_ldflags = -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc \
  -Wl,--wrap=posix_memalign -Wl,--wrap=free -Wl,--wrap=mmap -Wl,--wrap=munmap \
  -Wl,--wrap=posix_fallocate

tests_suite_test_memory_SOURCES = tests/suite/test_memory.c $(allocation_sources)
tests_suite_test_memory_CPPFLAGS = $(unit_cppflags) \
  -DEPX_MANUAL='"$(abs_srcdir)/man/epx_memory.7"'
tests_suite_test_memory_LDFLAGS = $(allocation_ldflags)
tests_suite_test_memory_LDADD = $(unit_ldadd)

soak_sources = tests/suite/soak.c tests/suite/soak.h tests/fields/fields.c tests/fields/fields.h
tests_suite_soak_SOURCES = $(soak_sources) tests/suite/soak_host.c $(allocation_sources)
tests_suite_soak_CPPFLAGS = $(suite_cppflags)
tests_suite_soak_LDFLAGS = $(allocation_ldflags)
tests_suite_soak_LDADD = $(unit_ldadd)

tests_suite_soak_device_SOURCES = tests/suite/soak_device.c $(soak_sources)
tests_suite_soak_device_CPPFLAGS = $(suite_cppflags) $(vendor_cppflags)
tests_suite_soak_device_LDADD = $(suite_ldadd) $(CUDA_LIBS)

# make check takes a few hundred of these steps, and one round of faults. Each round has a seed of
# its own. Tests that skip say why.
soak: tests/suite/soak tests/faults/soak_faults $(soaks_of_devices)
	for test in tests/soak-4.mpi $(filter tests/soak_device-%,$(TEST_MATRIX)); do \
	  SOAK_STEPS=$${SOAK_STEPS-10000} TIMEOUT_S=$${TIMEOUT_S-7200} MPIEXEC='$(MPIEXEC)' \
	    $(SHELL) $(srcdir)/tests/run $$test || test $$? -eq 77 || exit 1; \
	done
	first=$${SOAK_SEED-`date +%s`}; round=0; \
	while test $$round -lt $${SOAK_ROUNDS-20}; do \
	  for test in $(filter tests/soak_faults-%,$(TEST_MATRIX)); do \
	    SOAK_SEED=`expr $$first + $$round` SOAK_STEPS=20 MPIEXEC='$(MPIEXEC)' \
	      $(SHELL) $(srcdir)/tests/run $$test || test $$? -eq 77 || exit 1; \
	  done; \
	  round=`expr $$round + 1`; \
	done
.PHONY: soak

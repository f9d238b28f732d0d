# SPDX-License-Identifier: BSD-3-Clause
# Who waits for whom, and ranks that go on without others.
test_programs += \
  tests/health/test_lost \
  tests/health/test_shrink \
  tests/health/test_waits

tests_health_test_lost_SOURCES = tests/health/test_lost.c $(board_sources)
tests_health_test_lost_CPPFLAGS = $(suite_cppflags)
tests_health_test_lost_LDADD = $(suite_ldadd)

scene_space = tests/health/scene_space.h
scene_space_cppflags = $(tests_cppflags)
scene_space_ldadd = libepx.la
if HAVE_CUDA
scene_space += tests/health/scene_space_cuda.c
scene_space_cppflags += $(vendor_cppflags)
scene_space_ldadd += $(CUDA_LIBS)
else
scene_space += tests/health/scene_space_host.c
endif

tests_health_test_shrink_SOURCES = tests/health/test_shrink.c $(scenes) $(scene_space)
tests_health_test_shrink_CPPFLAGS = $(scene_space_cppflags)
tests_health_test_shrink_LDADD = $(scene_space_ldadd)

tests_health_test_waits_CPPFLAGS = $(suite_cppflags)
tests_health_test_waits_LDADD = $(suite_ldadd)

check_PROGRAMS += tests/health/time_shrink
tests_health_time_shrink_SOURCES = tests/health/time_shrink.c $(scenes) $(scene_space)
tests_health_time_shrink_CPPFLAGS = $(scene_space_cppflags)
tests_health_time_shrink_LDADD = $(scene_space_ldadd)

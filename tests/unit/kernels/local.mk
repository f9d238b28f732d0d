# SPDX-License-Identifier: BSD-3-Clause
test_programs += \
  tests/unit/kernels/unit_element \
  tests/unit/kernels/unit_kernels \
  tests/unit/kernels/unit_plan \
  tests/unit/kernels/unit_rows \
  tests/unit/kernels/unit_stage_stores

tests_unit_kernels_unit_element_CPPFLAGS = $(unit_cppflags)
tests_unit_kernels_unit_element_LDADD = $(unit_ldadd)

tests_unit_kernels_unit_kernels_CPPFLAGS = $(unit_cppflags)
tests_unit_kernels_unit_kernels_LDADD = tests/unit/kernels/libtwins.la $(unit_ldadd)

tests_unit_kernels_unit_plan_CPPFLAGS = $(unit_cppflags)
tests_unit_kernels_unit_plan_LDADD = $(unit_ldadd)

tests_unit_kernels_unit_rows_CPPFLAGS = $(unit_cppflags)
tests_unit_kernels_unit_rows_LDADD = $(unit_ldadd)

tests_unit_kernels_unit_stage_stores_CPPFLAGS = $(unit_cppflags)
tests_unit_kernels_unit_stage_stores_LDADD = $(unit_ldadd)

# libtwins runs on the device what unit_kernels runs on the host.
if HAVE_CHECK
check_LTLIBRARIES += tests/unit/kernels/libtwins.la
endif
tests_unit_kernels_libtwins_la_CPPFLAGS = $(unit_cppflags)
tests_unit_kernels_libtwins_la_SOURCES = tests/unit/kernels/twins.h
if HAVE_CUDA
tests_unit_kernels_libtwins_la_SOURCES += tests/unit/kernels/twins.cu
tests_unit_kernels_libtwins_la_LIBADD = $(CUDA_LIBS)
else
tests_unit_kernels_libtwins_la_SOURCES += tests/unit/kernels/twins_host.c
endif

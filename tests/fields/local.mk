# SPDX-License-Identifier: BSD-3-Clause
# Dispatches of several fields, which every transport must do.
test_programs += tests/fields/test_fields

tests_fields_test_fields_SOURCES = \
  tests/fields/fields.c \
  tests/fields/fields.h \
  tests/fields/test_fields.c
tests_fields_test_fields_CPPFLAGS = $(suite_cppflags)
tests_fields_test_fields_LDADD = $(suite_ldadd)

if HAVE_CUDA
test_programs += tests/fields/test_fields_device
endif

tests_fields_test_fields_device_SOURCES = \
  tests/fields/fields.c \
  tests/fields/fields.h \
  tests/fields/test_fields_device.c
tests_fields_test_fields_device_CPPFLAGS = $(suite_cppflags) $(vendor_cppflags)
tests_fields_test_fields_device_LDADD = $(suite_ldadd) $(CUDA_LIBS)

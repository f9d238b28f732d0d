# SPDX-License-Identifier: BSD-3-Clause
# libsuite: a Check suite that all ranks run together, layers and operations for it, and the
# reference that says what every rank must see.
if HAVE_CHECK
check_LTLIBRARIES += tests/support/libsuite.la
endif
tests_support_libsuite_la_CPPFLAGS = $(suite_cppflags)
tests_support_libsuite_la_SOURCES = \
  tests/exchange/neighbors.c \
  tests/exchange/neighbors.h \
  tests/support/buffer.c \
  tests/support/buffer.h \
  tests/support/data.c \
  tests/support/data.h \
  tests/support/exchange.c \
  tests/support/exchange.h \
  tests/support/fault.c \
  tests/support/fault.h \
  tests/support/layer.c \
  tests/support/layer.h \
  tests/support/operation.c \
  tests/support/operation.h \
  tests/support/reference.c \
  tests/support/reference.h \
  tests/support/scenario.c \
  tests/support/scenario.h \
  tests/support/space.h \
  tests/support/suite.c \
  tests/support/suite.h
if HAVE_CUDA
tests_support_libsuite_la_CPPFLAGS += $(vendor_cppflags)
tests_support_libsuite_la_SOURCES += \
  tests/support/gpu.cu \
  tests/support/gpu.h \
  tests/support/space_cuda.c
tests_support_libsuite_la_LIBADD = $(CUDA_LIBS)
else
tests_support_libsuite_la_SOURCES += tests/support/space_host.c
endif

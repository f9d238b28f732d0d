# SPDX-License-Identifier: BSD-3-Clause
bin_PROGRAMS += epx_moe
epx_moe_SOURCES = $(epx_moe_files)
epx_moe_LDADD = libepx.la $(MPI_LIBS) -lm

epx_moe_files = \
  examples/epx_moe.h \
  examples/epx_moe.c \
  examples/epx_moe_layer.c \
  examples/epx_moe_model.c \
  examples/epx_moe_serial.c \
  examples/epx_moe_text.c

exampledir = $(docdir)/examples
dist_example_DATA = $(epx_moe_files) \
  examples/first.c \
  examples/harbour.txt

# SPDX-License-Identifier: BSD-3-Clause
bin_PROGRAMS += epx_info
epx_info_SOURCES = \
  tools/epx_info.c \
  tools/json.c \
  tools/json.h \
  tools/option_meant.c \
  tools/option_meant.h
epx_info_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/src -I$(top_srcdir)/tools
epx_info_LDADD = libepx_core.la

include tools/epx_perf/local.mk

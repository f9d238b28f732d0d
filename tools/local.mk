# SPDX-License-Identifier: BSD-3-Clause
bin_PROGRAMS += epx_info
epx_info_SOURCES = \
  tools/epx_info.c \
  tools/info_waits.c \
  tools/info_waits.h \
  tools/info_ways.c \
  tools/info_ways.h \
  tools/json.c \
  tools/json.h \
  tools/option_meant.c \
  tools/option_meant.h
nodist_epx_info_SOURCES = tools/configure_line.h
epx_info_CPPFLAGS = $(AM_CPPFLAGS) -I$(top_srcdir)/src -I$(top_srcdir)/tools -Itools
epx_info_LDADD = libepx_core.la libepx_mpi_parts.la $(MPI_LIBS)

# What configure was given stands in a header of its own, which changes only with that: config.h,
# which all objects depend on, stays as it is.
BUILT_SOURCES += tools/configure_line.h
CLEANFILES += tools/configure_line.h
tools/configure_line.h: config.status
	@$(MKDIR_P) tools && { \
	  echo '/* SPDX-License-Identifier: BSD-3-Clause */'; \
	  echo '/* configure_line.h - the arguments given to configure. */'; \
	  ./config.status --config | $(SED) 's/[\\"]/\\&/g; s/.*/#define EPX_CONFIGURE_LINE "&"/'; \
	} >$@.tmp && \
	if cmp -s $@.tmp $@; then rm -f $@.tmp; else mv -f $@.tmp $@; fi

include tools/epx_perf/local.mk
include tools/ranks/local.mk

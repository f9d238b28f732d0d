# SPDX-License-Identifier: BSD-3-Clause
# Streams and graphs, and the work on them.
EXTRA_DIST += \
  tests/emulation/streams/graphs.c \
  tests/emulation/streams/graphs.h \
  tests/emulation/streams/streams.c \
  tests/emulation/streams/streams.h \
  tests/emulation/streams/works.c \
  tests/emulation/streams/works.h

# SPDX-License-Identifier: BSD-3-Clause
# Kernels, their blocks and their threads.
EXTRA_DIST += \
  tests/emulation/device/blocks.c \
  tests/emulation/device/blocks.h \
  tests/emulation/device/bulk.c \
  tests/emulation/device/bulk.h \
  tests/emulation/device/checks.c \
  tests/emulation/device/checks.h \
  tests/emulation/device/fibers.c \
  tests/emulation/device/fibers.h \
  tests/emulation/device/kernels.c \
  tests/emulation/device/kernels.h \
  tests/emulation/device/settings.c \
  tests/emulation/device/settings.h \
  tests/emulation/device/threads.h

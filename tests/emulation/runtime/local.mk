# SPDX-License-Identifier: BSD-3-Clause
# The calls of CUDA, and memory.
EXTRA_DIST += \
  tests/emulation/runtime/device_calls.c \
  tests/emulation/runtime/driver.c \
  tests/emulation/runtime/driver.h \
  tests/emulation/runtime/errors.h \
  tests/emulation/runtime/known_memory.c \
  tests/emulation/runtime/known_memory.h \
  tests/emulation/runtime/memory_calls.c \
  tests/emulation/runtime/stream_calls.c

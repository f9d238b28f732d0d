# SPDX-License-Identifier: BSD-3-Clause
# What kernels see of the emulated GPU.
EXTRA_DIST += \
  tests/emulation/include/emulated_kernel.h \
  tests/emulation/include/emulated_ptx.h \
  tests/emulation/include/emulation.h

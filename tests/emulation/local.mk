# SPDX-License-Identifier: BSD-3-Clause
# A CUDA Toolkit whose kernels run on the host. It is no part of a build: `toolkit` makes it in a
# folder of its own, which configure is given as --with-cuda.
EXTRA_DIST += \
  tests/emulation/kernel_source.awk \
  tests/emulation/nvcc \
  tests/emulation/nvidia-smi \
  tests/emulation/toolkit

include tests/emulation/include/local.mk
include tests/emulation/device/local.mk
include tests/emulation/streams/local.mk
include tests/emulation/runtime/local.mk

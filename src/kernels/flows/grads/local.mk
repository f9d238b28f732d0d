# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/flows/grads/grad_movers.cuh \
  src/kernels/flows/grads/move_grads.cu \
  src/kernels/flows/grads/scale_small.cu

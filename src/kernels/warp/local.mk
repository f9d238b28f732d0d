# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/warp/boxes.cuh \
  src/kernels/warp/copy_row.cuh \
  src/kernels/warp/dots.cuh \
  src/kernels/warp/lanes.cuh \
  src/kernels/warp/odd_rows.cuh \
  src/kernels/warp/pack_types.cuh \
  src/kernels/warp/ptx.cuh \
  src/kernels/warp/sum_ring.cuh \
  src/kernels/warp/sum_rows.cuh

# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/dispatch/dispatch_fields_small.cu \
  src/kernels/dispatch/dispatch_packets.cu \
  src/kernels/dispatch/dispatch_rounds.cu \
  src/kernels/dispatch/dispatch_rows.cu \
  src/kernels/dispatch/dispatch_small.cu \
  src/kernels/dispatch/few_rows.cuh \
  src/kernels/dispatch/fields.cuh \
  src/kernels/dispatch/flagged_rows.cuh \
  src/kernels/dispatch/pack_rows.cu \
  src/kernels/dispatch/packs.cuh \
  src/kernels/dispatch/pass_rows.cu \
  src/kernels/dispatch/passes.cuh \
  src/kernels/dispatch/route_dispatch_fields_small.cu \
  src/kernels/dispatch/route_dispatch_small.cu \
  src/kernels/dispatch/route_dispatch_small.cuh \
  src/kernels/dispatch/scale_small.cu \
  src/kernels/dispatch/scales.cuh \
  src/kernels/dispatch/sends.cuh \
  src/kernels/dispatch/small_fields.cuh \
  src/kernels/dispatch/small_rows.cuh \
  src/kernels/dispatch/spreads.cuh \
  src/kernels/dispatch/unpack_rows.cu

# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/flows/rows/dispatch_packets.cu \
  src/kernels/flows/rows/dispatch_rounds.cu \
  src/kernels/flows/rows/dispatch_small.cu \
  src/kernels/flows/rows/end_dispatch.cuh \
  src/kernels/flows/rows/few_rows.cuh \
  src/kernels/flows/rows/fields.cuh \
  src/kernels/flows/rows/move_rows.cu \
  src/kernels/flows/rows/pack_rows.cu \
  src/kernels/flows/rows/packs.cuh \
  src/kernels/flows/rows/padding.cuh \
  src/kernels/flows/rows/pass_rows.cu \
  src/kernels/flows/rows/route_dispatch_fields_small.cu \
  src/kernels/flows/rows/route_dispatch_small.cu \
  src/kernels/flows/rows/route_dispatch_small.cuh \
  src/kernels/flows/rows/row_bundles.cuh \
  src/kernels/flows/rows/row_movers.cuh \
  src/kernels/flows/rows/row_receivers.cuh \
  src/kernels/flows/rows/rows_that_stay.cuh \
  src/kernels/flows/rows/small_fields.cuh \
  src/kernels/flows/rows/small_rows.cuh \
  src/kernels/flows/rows/spreads.cuh \
  src/kernels/flows/rows/unpack_rows.cu \
  src/kernels/flows/rows/windows.cuh

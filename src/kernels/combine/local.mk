# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/combine/combine_packets.cu \
  src/kernels/combine/combine_rounds.cu \
  src/kernels/combine/combine_rows.cu \
  src/kernels/combine/combine_small.cu \
  src/kernels/combine/few_sums.cuh \
  src/kernels/combine/own_sums.cuh \
  src/kernels/combine/pack_sums.cu \
  src/kernels/combine/packed_places.cuh \
  src/kernels/combine/pass_sums.cu \
  src/kernels/combine/passed_sums.cuh \
  src/kernels/combine/sum_packets.cuh \
  src/kernels/combine/sums.cuh \
  src/kernels/combine/unpack_sums.cu

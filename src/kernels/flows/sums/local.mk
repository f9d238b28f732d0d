# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/flows/sums/combine_packets.cu \
  src/kernels/flows/sums/combine_rounds.cu \
  src/kernels/flows/sums/combine_small.cu \
  src/kernels/flows/sums/few_sums.cuh \
  src/kernels/flows/sums/home_sums.cuh \
  src/kernels/flows/sums/move_sums.cu \
  src/kernels/flows/sums/own_sums.cuh \
  src/kernels/flows/sums/pack_sums.cu \
  src/kernels/flows/sums/packed_places.cuh \
  src/kernels/flows/sums/pass_sums.cu \
  src/kernels/flows/sums/passed_sums.cuh \
  src/kernels/flows/sums/places.cuh \
  src/kernels/flows/sums/record_runs.cuh \
  src/kernels/flows/sums/sum_movers.cuh \
  src/kernels/flows/sums/sum_packets.cuh \
  src/kernels/flows/sums/sums.cuh \
  src/kernels/flows/sums/unpack_sums.cu

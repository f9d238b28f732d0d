# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/alltoallv/alltoallv_messages.cu \
  src/kernels/alltoallv/alltoallv_rows.cu \
  src/kernels/alltoallv/count_checks.cuh \
  src/kernels/alltoallv/edge_counts.cuh \
  src/kernels/alltoallv/neighbor_messages.cu \
  src/kernels/alltoallv/neighbor_rows.cu \
  src/kernels/alltoallv/piece_turns.cuh \
  src/kernels/alltoallv/row_packets.cuh \
  src/kernels/alltoallv/row_steps.cuh

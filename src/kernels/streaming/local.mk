# SPDX-License-Identifier: BSD-3-Clause
# Operations that are not small, behind the agreement.
libepx_cuda_la_SOURCES += \
  src/kernels/streaming/boxes.cuh \
  src/kernels/streaming/grad_movers.cuh \
  src/kernels/streaming/move_grads.cu \
  src/kernels/streaming/move_rows.cu \
  src/kernels/streaming/move_sums.cu \
  src/kernels/streaming/record_runs.cuh \
  src/kernels/streaming/row_bundles.cuh \
  src/kernels/streaming/row_movers.cuh \
  src/kernels/streaming/row_takers.cuh \
  src/kernels/streaming/rows_that_stay.cuh \
  src/kernels/streaming/sender_progress.cuh \
  src/kernels/streaming/sum_movers.cuh \
  src/kernels/streaming/sum_streams.cuh \
  src/kernels/streaming/task_claims.cuh

# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/protocol/agree_by_words.cu \
  src/kernels/protocol/announce_end.cu \
  src/kernels/protocol/kernel_jitter.cuh \
  src/kernels/protocol/launches.cuh \
  src/kernels/protocol/load_kernels.cu \
  src/kernels/protocol/load_kernels.cuh \
  src/kernels/protocol/phases.cuh \
  src/kernels/protocol/protocol.cuh \
  src/kernels/protocol/ready_words.cuh \
  src/kernels/protocol/records.cuh \
  src/kernels/protocol/task_claims.cuh \
  src/kernels/protocol/waits.cuh

# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/protocol/agree_ranks.cu \
  src/kernels/protocol/announce_end.cu \
  src/kernels/protocol/await_messages.cu \
  src/kernels/protocol/banks.cuh \
  src/kernels/protocol/copies.cuh \
  src/kernels/protocol/exchange.cuh \
  src/kernels/protocol/kernel_jitter.cuh \
  src/kernels/protocol/launches.cuh \
  src/kernels/protocol/load_kernels.cu \
  src/kernels/protocol/load_kernels.cuh \
  src/kernels/protocol/message_rows.cuh \
  src/kernels/protocol/numbering.cuh \
  src/kernels/protocol/odd_rows.cuh \
  src/kernels/protocol/order.cuh \
  src/kernels/protocol/phases.cuh \
  src/kernels/protocol/protocol.cuh \
  src/kernels/protocol/ptx.cuh \
  src/kernels/protocol/ready_words.cuh \
  src/kernels/protocol/records.cuh \
  src/kernels/protocol/relays.cuh \
  src/kernels/protocol/row_packets.cuh \
  src/kernels/protocol/waits.cuh \
  src/kernels/protocol/warp_rows.cuh \
  src/kernels/protocol/warp_sums.cuh

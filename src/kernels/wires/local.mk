# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/wires/agree_by_messages.cu \
  src/kernels/wires/await_messages.cu \
  src/kernels/wires/banks.cuh \
  src/kernels/wires/copies.cuh \
  src/kernels/wires/slice_flags.cuh \
  src/kernels/wires/message_rows.cuh \
  src/kernels/wires/messages.cuh \
  src/kernels/wires/numbering.cuh \
  src/kernels/wires/packets.cuh \
  src/kernels/wires/relays.cuh \
  src/kernels/wires/sender_progress.cuh \
  src/kernels/wires/wire.cuh

# SPDX-License-Identifier: BSD-3-Clause
libepx_cuda_la_SOURCES += \
  src/kernels/routing/block_counts.cuh \
  src/kernels/routing/count_messages.cuh \
  src/kernels/routing/count_tokens.cu \
  src/kernels/routing/find_slots.cu \
  src/kernels/routing/list_node_rows.cu \
  src/kernels/routing/list_passed_rows.cu \
  src/kernels/routing/offsets.cuh \
  src/kernels/routing/pairs.cuh \
  src/kernels/routing/placed_pairs.cuh \
  src/kernels/routing/record_lists.cuh \
  src/kernels/routing/route_halves.cu \
  src/kernels/routing/route_small.cu \
  src/kernels/routing/route_tokens.cu \
  src/kernels/routing/route_tokens.cuh \
  src/kernels/routing/routing_steps.cuh \
  src/kernels/routing/send_records.cu \
  src/kernels/routing/slots.cuh \
  src/kernels/routing/small_ids.cuh \
  src/kernels/routing/small_numbers.cuh \
  src/kernels/routing/small_slots.cuh

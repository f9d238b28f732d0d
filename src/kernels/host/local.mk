# SPDX-License-Identifier: BSD-3-Clause
libepx_core_la_SOURCES += \
  src/kernels/host/assign_slots_host.c \
  src/kernels/host/count_pairs_host.c \
  src/kernels/host/host_kernels.h \
  src/kernels/host/index_rows_host.c \
  src/kernels/host/list_node_rows_host.c \
  src/kernels/host/offset_slabs_host.c \
  src/kernels/host/pack_node_rows_host.c \
  src/kernels/host/pack_rows_host.c \
  src/kernels/host/row_arithmetic.h \
  src/kernels/host/row_copy.c \
  src/kernels/host/row_copy.h \
  src/kernels/host/rows.c \
  src/kernels/host/rows.h \
  src/kernels/host/stage_stores.c \
  src/kernels/host/stage_stores.h \
  src/kernels/host/sum_node_ranks_host.c \
  src/kernels/host/sum_nodes_host.c \
  src/kernels/host/sum_pairs_host.c \
  src/kernels/host/sum_ranks_host.c \
  src/kernels/host/unpack_node_rows_host.c \
  src/kernels/host/unpack_rows_host.c \
  src/kernels/host/zero_padding_host.c

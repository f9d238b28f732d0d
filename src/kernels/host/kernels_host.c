/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels_host.c - the table of launchers for host memory. */
#include "kernels/host/host_kernels.h"

const struct epx_kernels epx_kernels_host = {
    .count_pairs = epx_count_pairs_host,
    .offset_slabs = epx_offset_slabs_host,
    .assign_slots = epx_assign_slots_host,
    .index_rows = epx_index_rows_host,
    .zero_padding = epx_zero_padding_host,
    .pack_rows = epx_pack_rows_host,
    .unpack_rows = epx_unpack_rows_host,
    .sum_pairs = epx_sum_pairs_host,
    .sum_ranks = epx_sum_ranks_host,
    .list_node_rows = epx_list_node_rows_host,
    .pack_node_rows = epx_pack_node_rows_host,
    .unpack_node_rows = epx_unpack_node_rows_host,
    .sum_node_ranks = epx_sum_node_ranks_host,
    .sum_nodes = epx_sum_nodes_host,
};

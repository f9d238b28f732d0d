/* SPDX-License-Identifier: BSD-3-Clause */
/* load_kernels.c - the list of kernels of the CUDA module. */
#include "kernels/device_args.h"

int epx_load_kernels(void)
{
    static int (*const loaders[])(void) = {
        epx_load_route_tokens, epx_load_dispatch_rows, epx_load_store_rows,
        epx_load_spread_rows,  epx_load_scale_rows,    epx_load_combine_rows,
        epx_load_store_sums,   epx_load_sum_ranks,     epx_load_alltoallv_rows,
        epx_load_await_rows,   epx_load_announce_end,  epx_load_agree_ranks,
        epx_load_await_messages, epx_load_count_tokens, epx_load_send_records,
        epx_load_find_slots,   epx_load_pack_rows,     epx_load_unpack_rows,
        epx_load_pack_sums,    epx_load_unpack_sums,   epx_load_alltoallv_messages,
        epx_load_dispatch_rounds, epx_load_combine_rounds, epx_load_list_node_rows,
        epx_load_list_passed_rows, epx_load_pass_rows, epx_load_pass_sums,
    };

    for (size_t i = 0; i < sizeof(loaders) / sizeof(loaders[0]); i++)
        if (loaders[i]() != EPX_SUCCESS)
            return EPX_ERR_CUDA;
    return EPX_SUCCESS;
}

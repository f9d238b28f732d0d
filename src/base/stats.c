/* SPDX-License-Identifier: BSD-3-Clause */
/* stats.c - counters of one communicator. */
#include "base/stats.h"

#include <string.h>

void epx_stats_count_rows(EPX_Stats *stats, enum epx_distance distance, int64_t rows,
                          int64_t row_bytes)
{
    uint64_t *rows_of[] = {&stats->rows_self, &stats->rows_node, &stats->rows_network};
    uint64_t *bytes_of[] = {&stats->bytes_self, &stats->bytes_node, &stats->bytes_network};

    *rows_of[distance] += (uint64_t)rows;
    *bytes_of[distance] += (uint64_t)rows * (uint64_t)row_bytes;
}

int epx_stats_copy(const EPX_Stats *stats, EPX_Stats *copy)
{
    size_t size;

    EPX_FAIL_IF(!copy, EPX_ERR_ARG, "stats is NULL");
    size = copy->size;
    EPX_FAIL_IF(size < offsetof(EPX_Stats, host_syncs) + sizeof(uint64_t), EPX_ERR_ARG,
                "stats.size is %zu, want sizeof(EPX_Stats), %zu", size, sizeof(*stats));
    memcpy(copy, stats, size < sizeof(*stats) ? size : sizeof(*stats));
    copy->size = size;
    return EPX_SUCCESS;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layout - prints sizes and offsets of the structs of the epx.h that it is compiled with, as far as
 * that of 0.1.0 has their members: "struct NAME SIZE" and "member NAME.MEMBER OFFSET SIZE".
 */
#include <epx.h>
#include <stdio.h>

#define STRUCT(s) printf("struct %s %zu\n", #s, sizeof(s))
#define MEMBER(s, m) printf("member %s.%s %zu %zu\n", #s, #m, offsetof(s, m), sizeof(((s *)0)->m))

static void print_attr(void)
{
    STRUCT(EPX_Route_attr);
    MEMBER(EPX_Route_attr, size);
    MEMBER(EPX_Route_attr, num_experts);
    MEMBER(EPX_Route_attr, top_k);
    MEMBER(EPX_Route_attr, max_tokens);
    MEMBER(EPX_Route_attr, alignment);
    MEMBER(EPX_Route_attr, recv_capacity);
    MEMBER(EPX_Route_attr, max_row_bytes);
    MEMBER(EPX_Route_attr, index_bits);
    MEMBER(EPX_Route_attr, layout);
    MEMBER(EPX_Route_attr, overflow);
}

static void print_view(void)
{
    STRUCT(EPX_Route_view);
    MEMBER(EPX_Route_view, size);
    MEMBER(EPX_Route_view, num_local_experts);
    MEMBER(EPX_Route_view, first_local_expert);
    MEMBER(EPX_Route_view, capacity);
    MEMBER(EPX_Route_view, expert_counts);
    MEMBER(EPX_Route_view, expert_offsets);
    MEMBER(EPX_Route_view, rank_counts);
    MEMBER(EPX_Route_view, num_rows);
    MEMBER(EPX_Route_view, required_rows);
    MEMBER(EPX_Route_view, slots);
    MEMBER(EPX_Route_view, row_expert_ids);
    MEMBER(EPX_Route_view, row_tokens);
    MEMBER(EPX_Route_view, row_ranks);
}

static void print_stats(void)
{
    STRUCT(EPX_Stats);
    MEMBER(EPX_Stats, size);
    MEMBER(EPX_Stats, calls);
    MEMBER(EPX_Stats, rows_self);
    MEMBER(EPX_Stats, rows_node);
    MEMBER(EPX_Stats, rows_network);
    MEMBER(EPX_Stats, bytes_self);
    MEMBER(EPX_Stats, bytes_node);
    MEMBER(EPX_Stats, bytes_network);
    MEMBER(EPX_Stats, dropped_rows);
    MEMBER(EPX_Stats, timeouts);
    MEMBER(EPX_Stats, host_syncs);
}

int main(void)
{
    print_attr();
    print_view();
    print_stats();
    return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* sizing.c - rows and bytes of a receive buffer, before it is there. */
#include <epx.h>
#include <stdio.h>

struct layer {
    int64_t ranks, experts, choices, tokens, alignment, row_bytes;
};

/* The worst case in EPX_Route_create(3): all pairs come here. */
static int64_t worst_rows(const struct layer *l, EPX_Layout layout)
{
    int64_t local = l->experts / l->ranks;

    if (layout == EPX_RANK_MAJOR)
        return l->ranks * l->tokens;
    return l->ranks * l->tokens * l->choices +
           local * (l->alignment - 1);
}

/* Experts that get equally many pairs, and padding, times a margin. */
static int64_t usual_rows(const struct layer *l, double margin)
{
    int64_t local = l->experts / l->ranks;
    double pairs = (double)(l->tokens * l->choices) * margin;

    return (int64_t)pairs + local * (l->alignment - 1);
}

/* Private memory of a route, as COST in epx_memory(7) has it. */
static int64_t route_bytes(const struct layer *l, EPX_Layout layout,
                           int64_t C)
{
    int64_t K = l->choices, T = l->tokens, E = l->experts;
    int64_t U = T * (K < l->ranks ? K : l->ranks), L = E / l->ranks;

    return 12 * T * K + 12 * T + 20 * U + 16 * E + 20 * L + 8 * C +
           (layout == EPX_RANK_MAJOR ? 4 * K * C : 0);
}

static void print(const struct layer *l, const char *what,
                  EPX_Layout layout, int64_t rows)
{
    double buffer = (double)(rows * l->row_bytes) / 1e9;

    printf("%s: %lld rows\n", what, (long long)rows);
    printf("%s: a buffer %.2f GB, two %.2f GB, route %.3f GB\n", what,
           buffer, 2 * buffer,
           (double)route_bytes(l, layout, rows) / 1e9);
}

/* Makes a route for the ranks that are here: do the formulas hold? */
static void compare(EPX_Comm comm, struct layer l, EPX_Layout layout)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Route route = EPX_ROUTE_NULL;
    int rank, size;

    EPX_Comm_rank(comm, &rank);
    EPX_Comm_size(comm, &size);
    l.ranks = size;
    l.tokens = 256;
    l.alignment = layout == EPX_RANK_MAJOR ? 1 : l.alignment;
    attr.num_experts = (int)l.experts;
    attr.top_k = (int)l.choices;
    attr.max_tokens = (int)l.tokens;
    attr.alignment = (int)l.alignment;
    attr.layout = layout;
    EPX_Route_create(&attr, comm, &route);
    EPX_Route_get_view(route, &view);
    if (rank == 0)
        printf(
            "%d ranks of 256 tokens: EPX says %lld, the formula %lld\n",
            size, (long long)view.capacity,
            (long long)worst_rows(&l, layout));
    EPX_Route_free(&route);
}

int main(int argc, char **argv)
{
    const struct layer l = {64, 256, 8, 4096, 128, 7168 * 2};
    EPX_Comm comm = EPX_COMM_NULL;
    int rank;

    MPI_Init(&argc, &argv);
    EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    EPX_Comm_rank(comm, &rank);
    compare(comm, l, EPX_EXPERT_MAJOR);
    compare(comm, l, EPX_RANK_MAJOR);
    if (rank == 0) {
        print(&l, "worst, expert-major", EPX_EXPERT_MAJOR,
              worst_rows(&l, EPX_EXPERT_MAJOR));
        print(&l, "worst, rank-major", EPX_RANK_MAJOR,
              worst_rows(&l, EPX_RANK_MAJOR));
        print(&l, "2 x average, expert-major", EPX_EXPERT_MAJOR,
              usual_rows(&l, 2.0));
    }
    EPX_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}

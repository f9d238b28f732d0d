/* SPDX-License-Identifier: BSD-3-Clause */
/* neighbors.c - graphs as a pure function of a shape and a seed. */
#include "exchange/neighbors.h"

#include <stdlib.h>

#include "support/data.h"
#include "support/suite.h"

enum { MANY = 40 };

static int in_ring(int source, int target)
{
    int up = (source + 1) % suite_size == target;
    int down = (target + 1) % suite_size == source;

    return up + down;
}

/* How many edges go from one rank to another. */
static int times(const struct neighbors *n, int source, int target)
{
    uint64_t pair = (uint64_t)(source * suite_size + target);
    int last = suite_size - 1;

    switch (n ? n->shape : SHAPE_ALL) {
    case SHAPE_RANDOM:
        return data_below(n->seed, 71, pair, 3) ? 0 : 1 + data_below(n->seed, 72, pair, 3);
    case SHAPE_RING: return in_ring(source, target);
    case SHAPE_ALL: return 1;
    case SHAPE_SELF: return source == target ? 2 : 0;
    case SHAPE_FEW: return source == 0;
    case SHAPE_ODD_ALONE: return source % 2 == 0 && target % 2 == 0;
    case SHAPE_MANY: return source + target == last && (!source || !target) ? MANY : 0;
    default: return 0;
    }
}

/* Turns the list around from a place that differs by rank and direction, so that ranks do not list
 * each other in one order; the times that a rank stands in it are numbered anew. */
static void rotate(struct partner *list, int length, int by)
{
    struct partner *copy = calloc((size_t)length + 1, sizeof(*copy));
    int *seen = calloc((size_t)suite_size, sizeof(*seen));

    for (int i = 0; i < length; i++)
        copy[i] = list[(i + by) % length];
    for (int i = 0; i < length; i++)
        list[i] = (struct partner){copy[i].rank, seen[copy[i].rank]++};
    free(copy);
    free(seen);
}

int neighbors_list(const struct neighbors *n, int rank, int incoming, struct partner *list)
{
    int length = 0;

    for (int r = 0; r < suite_size; r++) {
        int num = incoming ? times(n, r, rank) : times(n, rank, r);

        for (int k = 0; k < num; k++, length++)
            if (list)
                list[length] = (struct partner){r, k};
    }
    if (list && n && n->shape != SHAPE_ALL && length)
        rotate(list, length, data_below(n->seed, 73, (uint64_t)(2 * rank + incoming), length));
    return length;
}

static int *ranks_of(const struct neighbors *n, int incoming, int *length)
{
    int most = neighbors_list(n, suite_rank, incoming, NULL);
    struct partner *list = calloc((size_t)most + 1, sizeof(*list));
    int *ranks = calloc((size_t)most + 1, sizeof(*ranks));

    *length = neighbors_list(n, suite_rank, incoming, list);
    for (int i = 0; i < most; i++)
        ranks[i] = list[i].rank;
    free(list);
    return ranks;
}

int neighbors_open(struct neighbors *n, EPX_Comm comm)
{
    int in, out, rc, *sources = ranks_of(n, 1, &in), *destinations = ranks_of(n, 0, &out);

    rc = EPX_Graph_create_adjacent(comm, in, in ? sources : NULL, out, out ? destinations : NULL,
                                   &n->graph);
    free(sources);
    free(destinations);
    return rc;
}

void neighbors_close(struct neighbors *n)
{
    EXPECT_CODE(EPX_Graph_free(&n->graph), EPX_SUCCESS);
    EXPECT(n->graph == EPX_GRAPH_NULL, "graph not nulled");
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* route_plan.c - what the plans of both memory spaces take from the route, and show of it. */
#include "coll/route_plan.h"

#include "kernels/layout.h"
#include "kernels/slabs.h"

struct epx_plan_shape epx_plan_shape_of(const struct epx_route *route)
{
    const EPX_Route_attr *attr = &route->attr;
    int rank = route->comm->rank, ranks = route->comm->size;
    int32_t first = epx_first_expert(rank, attr->num_experts, ranks);
    struct epx_plan_shape shape = {
        .num_experts = attr->num_experts,
        .top_k = attr->top_k,
        .max_tokens = attr->max_tokens,
        .first_expert = first,
        .num_local = epx_first_expert(rank + 1, attr->num_experts, ranks) - first,
        .alignment = attr->alignment,
        .index_bits = attr->index_bits,
        .rank_major = attr->layout == EPX_RANK_MAJOR,
        .drops = attr->overflow == EPX_OVERFLOW_DROP,
        .by_choice = route->comm->params.combine_order == EPX_ORDER_CHOICE,
        .rows_per_expert = attr->rows_per_expert,
    };

    if (attr->layout != EPX_EXPERT_SLAB || attr->zero_unused)
        shape.zeroed_padding = epx_most_padding(&shape);
    return shape;
}

/* Rows of a rank that owns num_local experts, if every token of every rank goes there. A token
 * whose experts are distinct has at most one row at each of them. */
static int64_t worst_capacity(const EPX_Route_attr *attr, int num_ranks, int num_local)
{
    int64_t tokens = (int64_t)num_ranks * attr->max_tokens, rows;
    int64_t per_token = attr->distinct_experts && num_local < attr->top_k ? num_local : attr->top_k;

    if (num_local == 0)
        return 0;
    if (attr->layout == EPX_RANK_MAJOR)
        return tokens;
    if (attr->layout == EPX_EXPERT_SLAB)
        return __builtin_mul_overflow(attr->rows_per_expert, (int64_t)num_local, &rows) ? INT64_MAX
                                                                                        : rows;
    if (__builtin_mul_overflow(tokens, per_token, &rows))
        return INT64_MAX;
    return rows + (int64_t)num_local * (attr->alignment - 1);
}

int epx_route_find_capacity(struct epx_route *route, const struct epx_plan_shape *shape)
{
    int64_t worst = worst_capacity(&route->attr, route->comm->size, shape->num_local);

    route->capacity = route->attr.recv_capacity ? route->attr.recv_capacity : worst;
    if (route->capacity > worst)
        route->capacity = worst;
    EPX_FAIL_IF(route->capacity > INT32_MAX && shape->rows_per_expert, EPX_ERR_COUNT,
                "rows_per_expert is %lld: the %d experts of this rank have more than %d rows",
                (long long)shape->rows_per_expert, shape->num_local, INT32_MAX);
    EPX_FAIL_IF(route->capacity > INT32_MAX, EPX_ERR_COUNT,
                "the worst case is %lld rows, more than %d; set recv_capacity", (long long)worst,
                INT32_MAX);
    route->next_capacity = route->capacity;
    return EPX_SUCCESS;
}

void epx_find_owners(int32_t *owner, int32_t num_experts, int32_t num_ranks)
{
    for (int32_t r = 0; r < num_ranks; r++)
        for (int32_t e = epx_first_expert(r, num_experts, num_ranks);
             e < epx_first_expert(r + 1, num_experts, num_ranks); e++)
            owner[e] = r;
}

void epx_route_show_view(struct epx_route *route, const struct epx_plan_shape *shape,
                         const struct epx_plan_view *shown)
{
    EPX_Route_view *view = &route->view;

    view->num_local_experts = shape->num_local;
    view->first_local_expert = shape->first_expert;
    view->capacity = route->capacity;
    view->expert_counts = shown->expert_counts;
    view->expert_offsets = shape->rank_major ? NULL : shown->expert_offsets;
    view->rank_counts = shown->rank_counts;
    view->num_rows = shown->num_rows;
    view->required_rows = shown->required_rows;
    view->slots = shown->slots;
    view->row_expert_ids = shape->rank_major ? shown->row_expert_ids : NULL;
    view->row_tokens = shown->row_tokens;
    view->row_ranks = shown->row_ranks;
    view->expert_ends = shape->rank_major ? NULL : shown->expert_ends;
    view->group_sizes = shape->rank_major ? NULL : shown->group_sizes;
    view->overflow = shown->overflow;
    view->row_choices = shape->rank_major ? NULL : shown->row_choices;
}

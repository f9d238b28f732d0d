/* SPDX-License-Identifier: BSD-3-Clause */
/* route_create.c - how ranks make a route: its attributes, checked and compared across ranks. */
#include "core/route.h"

#include <stdlib.h>
#include <string.h>

#include "core/agree.h"

enum { MAX_TOP_K = 64 };

/* Bytes of a later version's struct that this version does not know must be zero. */
static int tail_is_zero(const void *object, size_t known, size_t size)
{
    const unsigned char *bytes = object;

    for (size_t i = known; i < size; i++)
        if (bytes[i])
            return 0;
    return 1;
}

static const char *const layouts[] = {[EPX_EXPERT_MAJOR] = "EPX_EXPERT_MAJOR",
                                      [EPX_RANK_MAJOR] = "EPX_RANK_MAJOR",
                                      [EPX_EXPERT_SLAB] = "EPX_EXPERT_SLAB"};

/* The layout, and the attributes that not every layout takes. */
static int check_layout(const EPX_Route_attr *a)
{
    int is_slab = a->layout == EPX_EXPERT_SLAB;

    EPX_FAIL_IF(a->layout < EPX_EXPERT_MAJOR || a->layout > EPX_EXPERT_SLAB, EPX_ERR_ARG,
                "layout is %d, want EPX_EXPERT_MAJOR, EPX_RANK_MAJOR or EPX_EXPERT_SLAB",
                a->layout);
    EPX_FAIL_IF(a->layout != EPX_EXPERT_MAJOR && a->alignment != 1, EPX_ERR_ARG,
                "alignment is %d, want 1 with %s", a->alignment, layouts[a->layout]);
    EPX_FAIL_IF(is_slab && a->rows_per_expert < 1, EPX_ERR_ARG,
                "rows_per_expert is %lld, want at least 1 with EPX_EXPERT_SLAB",
                (long long)a->rows_per_expert);
    EPX_FAIL_IF(!is_slab && a->rows_per_expert, EPX_ERR_ARG,
                "rows_per_expert is %lld, want 0 with %s", (long long)a->rows_per_expert,
                layouts[a->layout]);
    EPX_FAIL_IF(is_slab && a->recv_capacity, EPX_ERR_ARG,
                "recv_capacity is %lld, want 0 with EPX_EXPERT_SLAB", (long long)a->recv_capacity);
    return EPX_SUCCESS;
}

static int check_attr(const EPX_Route_attr *a)
{
    EPX_FAIL_IF(a->num_experts < 1, EPX_ERR_ARG, "num_experts is %d, want at least 1",
                a->num_experts);
    EPX_FAIL_IF(a->top_k < 1 || a->top_k > MAX_TOP_K, EPX_ERR_ARG, "top_k is %d, want 1 to %d",
                a->top_k, MAX_TOP_K);
    EPX_FAIL_IF(a->max_tokens < 1, EPX_ERR_COUNT,
                "max_tokens is %d, want the most tokens that a rank routes at a time, at least 1",
                a->max_tokens);
    EPX_FAIL_IF(a->alignment < 1 || (a->alignment & (a->alignment - 1)), EPX_ERR_ARG,
                "alignment is %d, want a power of two", a->alignment);
    EPX_FAIL_IF(a->recv_capacity < 0 || a->recv_capacity > INT32_MAX, EPX_ERR_COUNT,
                "recv_capacity is %lld, want 0 to %d", (long long)a->recv_capacity, INT32_MAX);
    EPX_FAIL_IF(a->max_row_bytes < 0, EPX_ERR_COUNT, "max_row_bytes is %lld",
                (long long)a->max_row_bytes);
    EPX_FAIL_IF(a->index_bits != 32 && a->index_bits != 64, EPX_ERR_ARG,
                "index_bits is %d, want 32 or 64", a->index_bits);
    EPX_FAIL_IF(a->overflow != EPX_OVERFLOW_ERROR && a->overflow != EPX_OVERFLOW_DROP, EPX_ERR_ARG,
                "overflow is %d, want EPX_OVERFLOW_ERROR or EPX_OVERFLOW_DROP", a->overflow);
    EPX_FAIL_IF(a->zero_unused != 0 && a->zero_unused != 1, EPX_ERR_ARG,
                "zero_unused is %d, want 0 or 1", a->zero_unused);
    EPX_FAIL_IF(a->distinct_experts != 0 && a->distinct_experts != 1, EPX_ERR_ARG,
                "distinct_experts is %lld, want 0 or 1", (long long)a->distinct_experts);
    return check_layout(a);
}

int epx_route_read_attr(const EPX_Route_attr *attr, EPX_Route_attr *copy)
{
    size_t least = offsetof(EPX_Route_attr, overflow) + sizeof(EPX_Overflow);

    EPX_FAIL_IF(!attr, EPX_ERR_ARG, "attr is NULL");
    EPX_FAIL_IF(attr->size < least || attr->size > 65536, EPX_ERR_ARG,
                "attr.size is %zu, want sizeof(EPX_Route_attr), %zu", attr->size, sizeof(*attr));
    EPX_FAIL_IF(!tail_is_zero(attr, sizeof(*attr), attr->size), EPX_ERR_ARG,
                "attr.size is %zu with members set that this version does not know", attr->size);
    *copy = (EPX_Route_attr)EPX_ROUTE_ATTR_INIT;
    memcpy(copy, attr, attr->size < sizeof(*copy) ? attr->size : sizeof(*copy));
    copy->size = sizeof(*copy);
    return check_attr(copy);
}

static int compare_attr(struct epx_comm *comm, const EPX_Route_attr *a)
{
    static const char *const overflows[] = {
        [EPX_OVERFLOW_ERROR] = "EPX_OVERFLOW_ERROR", [EPX_OVERFLOW_DROP] = "EPX_OVERFLOW_DROP"};

    EPX_TRY(epx_comm_same(comm, "num_experts", a->num_experts));
    EPX_TRY(epx_comm_same(comm, "top_k", a->top_k));
    EPX_TRY(epx_comm_same(comm, "max_tokens", a->max_tokens));
    EPX_TRY(epx_comm_same(comm, "alignment", a->alignment));
    EPX_TRY(epx_comm_same(comm, "max_row_bytes", a->max_row_bytes));
    EPX_TRY(epx_comm_same_word(comm, "layout", a->layout, layouts));
    if (a->layout == EPX_EXPERT_SLAB)
        EPX_TRY(epx_comm_same(comm, "rows_per_expert", a->rows_per_expert));
    return epx_comm_same_word(comm, "overflow", a->overflow, overflows);
}

int epx_route_create(struct epx_comm *comm, const EPX_Route_attr *attr, struct epx_route **route)
{
    struct epx_route *r = epx_route_allocate();
    int rc = r ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for a route");

    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS)
        rc = compare_attr(comm, attr);
    if (rc != EPX_SUCCESS) {
        free(r);
        return rc;
    }
    r->comm = comm;
    r->attr = *attr;
    r->id = comm->next_route++;
    epx_comm_retain(comm);
    *route = r;
    return EPX_SUCCESS;
}

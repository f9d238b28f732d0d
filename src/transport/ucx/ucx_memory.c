/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_memory.c - memory that UCX allocates and the ranks of a node map. */
#include <stdlib.h>
#include <string.h>

#include "core/agree.h"
#include "transport/ucx/ucx_link.h"

/* What a rank tells of its memory, followed by UCX's key to it. */
struct offer {
    uint64_t address;
    char key[];
};

static int allocate(struct epx_links *links, size_t bytes, char **own)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = bytes + EPX_PAGE_BYTES,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    uintptr_t first;

    EPX_TRY_UCX(ucp_mem_map(links->context, &params, &links->memory));
    EPX_TRY_UCX(ucp_mem_query(links->memory, &attr));
    first = ((uintptr_t)attr.address + EPX_PAGE_BYTES - 1) / EPX_PAGE_BYTES * EPX_PAGE_BYTES;
    *own = (char *)attr.address + (first - (uintptr_t)attr.address);
    memset(*own, 0, bytes);
    return EPX_SUCCESS;
}

/* Tells the others where this rank's memory is, and hears where theirs is. */
static int exchange_offers(struct epx_links *links, const char *own, size_t *stride)
{
    void *key = NULL;
    size_t key_bytes = 0;
    ucs_status_t status = ucp_rkey_pack(links->context, links->memory, &key, &key_bytes);
    struct offer *offer =
        status == UCS_OK ? epx_memory_zeroed(1, sizeof(*offer) + key_bytes) : NULL;
    int rc = EPX_SUCCESS;

    if (status != UCS_OK)
        rc = epx_fail_ucx(status, "ucp_rkey_pack");
    else if (!offer)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for a key of %zu bytes", key_bytes);
    rc = epx_comm_agree(links->comm, rc);
    if (rc == EPX_SUCCESS) {
        offer->address = (uintptr_t)own;
        memcpy(offer->key, key, key_bytes);
        rc = epx_ucx_gather(links->comm, offer, sizeof(*offer) + key_bytes, stride,
                            &links->exchange);
    }
    if (key)
        ucp_rkey_buffer_release(key);
    free(offer);
    return rc;
}

/* Frees the offers of all ranks: MPI is through with them. */
static void end_exchange(struct epx_links *links)
{
    free(links->exchange);
    links->exchange = NULL;
}

static int may_store(const struct epx_comm *comm, int rank)
{
    return comm->real_node[rank] == comm->real_node[comm->rank] &&
           comm->node[rank] == comm->node[comm->rank];
}

static char *map(struct epx_link *link, const struct offer *offer)
{
    void *address = NULL;

    if (ucp_ep_rkey_unpack(link->endpoint, offer->key, &link->memory) != UCS_OK)
        link->memory = NULL;
    else if (ucp_rkey_ptr(link->memory, offer->address, &address) != UCS_OK)
        address = NULL;
    return address;
}

/* All ranks map the memory of their nodes' other ranks, or none does. */
int epx_links_share(struct epx_links *links, size_t bytes, char **own, char **address)
{
    struct epx_comm *comm = links->comm;
    size_t stride;
    int64_t failures = 0, anywhere;

    EPX_TRY(epx_comm_agree(comm, allocate(links, bytes, own)));
    EPX_TRY(exchange_offers(links, *own, &stride));
    for (int r = 0; r < comm->size; r++) {
        const char *offer = links->exchange + (size_t)r * stride;

        if (r == comm->rank || !may_store(comm, r))
            continue;
        address[r] = map(&links->link[r], (const struct offer *)(const void *)offer);
        failures += !address[r];
    }
    end_exchange(links);
    EPX_TRY(epx_comm_max(comm, failures, &anywhere));
    for (int r = 0; anywhere && r < comm->size; r++)
        address[r] = NULL;
    if (anywhere)
        EPX_LOG_INFO("UCX does not map memory of the same node here: messages instead");
    return EPX_SUCCESS;
}

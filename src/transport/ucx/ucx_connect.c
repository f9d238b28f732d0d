/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_connect.c - a UCX worker of a communicator with an endpoint to every other rank. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/agree.h"
#include "core/progress.h"
#include "transport/ucx/ucx_link.h"

static int make_worker(struct epx_links *links)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK, /* letters to dead ranks */
    };

    EPX_TRY(epx_ucx_made(ucp_worker_create(links->context, &params, &links->worker),
                         "ucp_worker_create"));
    EPX_TRY(epx_links_take_letters(links));
    return epx_links_take_messages(links);
}

static void endpoint_failed(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    epx_link_report(argument, status);
}

static int connect_rank(struct epx_links *links, int rank, const ucp_address_t *address)
{
    struct epx_link *link = &links->link[rank];
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_handler = {.cb = endpoint_failed, .arg = link},
    };

    link->reports = epx_ucx_reports(links->comm, rank);
    params.err_mode = link->reports ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    EPX_TRY_UCX(ucp_ep_create(links->worker, &params, &link->endpoint));
    return EPX_SUCCESS;
}

static int connect_all(struct epx_links *links)
{
    size_t stride;
    int rc = EPX_SUCCESS;

    EPX_TRY(epx_ucx_addresses(links->comm, links->worker, &stride, &links->exchange));
    for (int r = 0; rc == EPX_SUCCESS && r < links->comm->size; r++)
        if (r != links->comm->rank)
            rc = connect_rank(links, r, (void *)(links->exchange + (size_t)r * stride));
    return epx_comm_agree(links->comm, rc);
}

static int init(struct epx_links *links)
{
    /* Ranks of one machine need no network, so nothing listens there. */
    const char *tls = links->comm->real_nodes == 1 ? "sm,self" : NULL;

    EPX_TRY(epx_ucx_made(
        epx_ucx_context(links->comm, UCP_FEATURE_AM | UCP_FEATURE_RMA, tls, &links->context),
        "ucp_init"));
    return make_worker(links);
}

static struct epx_links *allocate(struct epx_comm *comm)
{
    struct epx_links *links = epx_memory_zeroed(1, sizeof(*links));

    if (!links)
        return NULL;
    links->comm = comm;
    links->link = epx_memory_zeroed((size_t)comm->size, sizeof(*links->link));
    for (int r = 0; links->link && r < comm->size; r++) {
        struct epx_link *link = &links->link[r];

        link->links = links;
        link->rank = r;
        link->arrivals[0].link = link->arrivals[1].link = link;
    }
    return links;
}

/* Rank 0 draws the key for all. */
static int draw_key(struct epx_links *links)
{
    if (links->comm->rank == 0 && getentropy(&links->key, sizeof(links->key)) != 0)
        return epx_fail(EPX_ERR_TRANSPORT, "getentropy: %s", strerror(errno));
    return EPX_SUCCESS;
}

int epx_links_create(struct epx_comm *comm, struct epx_links **result)
{
    struct epx_links *links = *result = allocate(comm);
    int rc = links && links->link
                 ? draw_key(links)
                 : epx_fail(EPX_ERR_NO_MEM, "no memory for %d endpoints", comm->size);

    EPX_TRY(epx_comm_agree(comm, rc));
    EPX_TRY(epx_comm_bcast(comm, &links->key, (int)sizeof(links->key)));
    EPX_TRY(epx_comm_agree(comm, init(links)));
    EPX_TRY(connect_all(links));
    return epx_comm_agree(comm, epx_links_greet(links));
}

static void close_endpoint(struct epx_links *links, struct epx_link *link)
{
    ucp_ep_h endpoint = link->endpoint;

    if (link->memory)
        ucp_rkey_destroy(link->memory);
    if (!endpoint || !link->reports)
        return; /* destroying the worker closes it */
    link->closed = 1;
    link->endpoint = NULL;
    epx_ucx_close(links->worker, endpoint);
}

void epx_links_free(struct epx_links *links)
{
    if (!links)
        return;
    if (links->worker && links->link && links->comm->finished)
        epx_links_forget(links);
    else if (links->worker && links->link)
        epx_links_part(links);
    for (int r = 0; links->link && r < links->comm->size; r++)
        close_endpoint(links, &links->link[r]);
    if (links->memory)
        ucp_mem_unmap(links->context, links->memory);
    if (links->worker)
        ucp_worker_destroy(links->worker);
    if (links->context)
        ucp_cleanup(links->context);
    free(links->exchange);
    free(links->link);
    free(links);
}

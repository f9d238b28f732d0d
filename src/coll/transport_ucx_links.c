/* SPDX-License-Identifier: BSD-3-Clause */
/* transport_ucx_links.c - a UCX worker of a communicator with an endpoint to every other rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "progress.h"
#include "transport_ucx_link.h"

#define CLOSING_NS 1000000000LL

int epx_fail_ucx(ucs_status_t status, const char *call)
{
    int code = status == UCS_ERR_NO_MEMORY ? EPX_ERR_NO_MEM : EPX_ERR_TRANSPORT;

    return epx_fail(code, "%s: %s", call, ucs_status_string(status));
}

int epx_links_usable(char *why)
{
    unsigned major, minor, patch;

    ucp_get_version(&major, &minor, &patch);
    if (UCP_VERSION(major, minor) >= UCP_API_VERSION)
        return 1;
    snprintf(why, EPX_WHY_MAX, "libucp is version %u.%u, EPX was built with %d.%d", major, minor,
             UCP_API_MAJOR, UCP_API_MINOR);
    return 0;
}

/*
 * A connection that is reset during a put over TCP would abort the process. The option had its name
 * without TCP until UCX 1.16; a name that is unknown is taken, and warned of later, before 1.20.1.
 */
static void forbid_puts(ucp_config_t *config)
{
    unsigned major, minor, patch;

    ucp_get_version(&major, &minor, &patch);
    if (UCP_VERSION(major, minor) <= UCP_VERSION(1, 16) ||
        ucp_config_modify(config, "TCP_PUT_ENABLE", "n") != UCS_OK)
        ucp_config_modify(config, "PUT_ENABLE", "n");
}

static int make_context(struct epx_links *links)
{
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                      UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_RMA,
        .estimated_num_eps = (size_t)links->comm->size,
        .name = "epx",
    };
    ucp_config_t *config;
    ucs_status_t status;

    EPX_TRY_UCX(ucp_config_read(NULL, NULL, &config));
    if (links->comm->real_nodes > 1)
        forbid_puts(config);
    status = ucp_init(&params, config, &links->context);
    ucp_config_release(config);
    return status == UCS_OK ? EPX_SUCCESS : epx_fail_ucx(status, "ucp_init");
}

static int make_worker(struct epx_links *links)
{
    ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED,
        .flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK, /* letters to dead ranks */
    };

    EPX_TRY_UCX(ucp_worker_create(links->context, &params, &links->worker));
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
    const int *machine = links->comm->real_node;
    struct epx_link *link = &links->link[rank];
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = address,
        .err_handler = {.cb = endpoint_failed, .arg = link},
    };

    link->reports = machine[rank] != machine[links->comm->rank];
    params.err_mode = link->reports ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
    EPX_TRY_UCX(ucp_ep_create(links->worker, &params, &link->endpoint));
    return EPX_SUCCESS;
}

int epx_links_gather(struct epx_links *links, const void *own, size_t own_bytes, size_t *stride)
{
    struct epx_comm *comm = links->comm;
    size_t ranks = (size_t)comm->size;
    int64_t most;
    int rc = EPX_SUCCESS;

    EPX_TRY(epx_comm_max(comm, (int64_t)own_bytes, &most));
    *stride = ((size_t)most + EPX_LINE_BYTES - 1) / EPX_LINE_BYTES * EPX_LINE_BYTES;
    free(links->exchange);
    links->exchange = epx_memory_zeroed(ranks + 1, *stride);
    if (!links->exchange)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for the addresses of %zu ranks", ranks);
    EPX_TRY(epx_comm_agree(comm, rc));
    memcpy(links->exchange + ranks * *stride, own, own_bytes);
    return epx_comm_allgather_bytes(comm, links->exchange + ranks * *stride, (int)*stride,
                                    links->exchange);
}

static int connect_all(struct epx_links *links)
{
    ucp_address_t *own = NULL;
    size_t bytes = 0, stride;
    ucs_status_t status = ucp_worker_get_address(links->worker, &own, &bytes);
    int rc = status == UCS_OK ? EPX_SUCCESS : epx_fail_ucx(status, "ucp_worker_get_address");

    rc = epx_comm_agree(links->comm, rc);
    if (rc == EPX_SUCCESS)
        rc = epx_links_gather(links, own, bytes, &stride);
    if (own)
        ucp_worker_release_address(links->worker, own);
    EPX_TRY(rc);
    for (int r = 0; rc == EPX_SUCCESS && r < links->comm->size; r++)
        if (r != links->comm->rank)
            rc = connect_rank(links, r, (void *)(links->exchange + (size_t)r * stride));
    return epx_comm_agree(links->comm, rc);
}

static int init(struct epx_links *links)
{
    EPX_TRY(make_context(links));
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

int epx_links_create(struct epx_comm *comm, struct epx_links **result)
{
    struct epx_links *links = *result = allocate(comm);
    int rc = links && links->link
                 ? init(links)
                 : epx_fail(EPX_ERR_NO_MEM, "no memory for %d endpoints", comm->size);

    EPX_TRY(epx_comm_agree(comm, rc));
    EPX_TRY(connect_all(links));
    return epx_comm_agree(comm, epx_links_greet(links));
}

static void close_endpoint(struct epx_links *links, struct epx_link *link)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    ucp_ep_h endpoint = link->endpoint;
    int64_t start = epx_now_ns();
    void *request;

    if (link->key)
        ucp_rkey_destroy(link->key);
    if (!endpoint || !link->reports)
        return; /* the worker's end closes it */
    link->closed = 1;
    link->endpoint = NULL;
    request = ucp_ep_close_nbx(endpoint, &param);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS &&
           epx_now_ns() - start < CLOSING_NS)
        ucp_worker_progress(links->worker);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
}

void epx_links_free(struct epx_links *links)
{
    if (!links)
        return;
    if (links->worker && links->link)
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

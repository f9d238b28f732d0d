/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_context.c - what the transports of host and of device memory both need of UCX. */
#include "transport/ucx/ucx_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/agree.h"
#include "transport/ucx/ucx_room.h"

enum { CLOSING_MS = 1000 };

int epx_fail_ucx(ucs_status_t status, const char *call)
{
    int code = status == UCS_ERR_NO_MEMORY ? EPX_ERR_NO_MEM : EPX_ERR_TRANSPORT;

    return epx_fail(code, "%s: %s", call, ucs_status_string(status));
}

/* The error of a context or worker that UCX found too little for; UCS_OK = none. */
static _Atomic int shortage = UCS_OK;

int epx_ucx_made(ucs_status_t status, const char *call)
{
    if (status == UCS_OK)
        return EPX_SUCCESS;
    if (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_IO_ERROR || status == UCS_ERR_NO_RESOURCE)
        shortage = status;
    return epx_fail_ucx(status, call);
}

int epx_ucx_usable(const struct epx_comm *comm, char *why)
{
    unsigned major, minor, patch;

    ucp_get_version(&major, &minor, &patch);
    if (UCP_VERSION(major, minor) >= UCP_API_VERSION) {
        if (shortage == UCS_OK)
            return epx_ucx_has_room(comm, why) ? EPX_USABLE : EPX_SHORT;
        snprintf(why, EPX_WHY_MAX, "UCX failed in this process before: %s",
                 ucs_status_string((ucs_status_t)shortage));
        return EPX_SHORT;
    }
    snprintf(why, EPX_WHY_MAX, "libucp is version %u.%u, EPX was built with %d.%d", major, minor,
             UCP_API_MAJOR, UCP_API_MINOR);
    return EPX_UNUSABLE;
}

/*
 * Forbids puts over TCP: a connection that is reset during one would abort the process. Until UCX
 * 1.16 the option is PUT_ENABLE, later TCP_PUT_ENABLE. The version has to decide, because before
 * 1.20.1 ucp_config_modify accepts unknown names, which UCX warns of later.
 */
static void forbid_puts(ucp_config_t *config)
{
    unsigned major, minor, patch;

    ucp_get_version(&major, &minor, &patch);
    if (UCP_VERSION(major, minor) <= UCP_VERSION(1, 16) ||
        ucp_config_modify(config, "TCP_PUT_ENABLE", "n") != UCS_OK)
        ucp_config_modify(config, "PUT_ENABLE", "n");
}

ucs_status_t epx_ucx_context(const struct epx_comm *comm, uint64_t features, const char *tls,
                             ucp_context_h *context)
{
    ucp_params_t params = {
        .field_mask =
            UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS | UCP_PARAM_FIELD_NAME,
        .features = features,
        .estimated_num_eps = (size_t)comm->size,
        .name = "epx",
    };
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK)
        return status;
    if (comm->real_nodes > 1)
        forbid_puts(config);
    if (tls && !getenv("UCX_TLS"))
        ucp_config_modify(config, "TLS", tls);
    status = ucp_init(&params, config, context);
    ucp_config_release(config);
    return status;
}

int epx_ucx_gather(struct epx_comm *comm, const void *own, size_t own_bytes, size_t *stride,
                   char **all)
{
    size_t ranks = (size_t)comm->size;
    int64_t most;
    int rc = EPX_SUCCESS;

    EPX_TRY(epx_comm_max(comm, (int64_t)own_bytes, &most));
    *stride = ((size_t)most + EPX_LINE_BYTES - 1) / EPX_LINE_BYTES * EPX_LINE_BYTES;
    free(*all);
    *all = epx_memory_zeroed(ranks + 1, *stride);
    if (!*all)
        rc = epx_fail(EPX_ERR_NO_MEM, "no memory for the addresses of %zu ranks", ranks);
    EPX_TRY(epx_comm_agree(comm, rc));
    memcpy(*all + ranks * *stride, own, own_bytes);
    return epx_comm_allgather_bytes(comm, *all + ranks * *stride, (int)*stride, *all);
}

int epx_ucx_addresses(struct epx_comm *comm, ucp_worker_h worker, size_t *stride, char **all)
{
    ucp_address_t *own = NULL;
    size_t bytes = 0;
    ucs_status_t status = ucp_worker_get_address(worker, &own, &bytes);
    int rc = status == UCS_OK ? EPX_SUCCESS : epx_fail_ucx(status, "ucp_worker_get_address");

    rc = epx_comm_agree(comm, rc);
    if (rc == EPX_SUCCESS)
        rc = epx_ucx_gather(comm, own, bytes, stride, all);
    if (own)
        ucp_worker_release_address(worker, own);
    return rc;
}

int epx_ucx_reports(const struct epx_comm *comm, int rank)
{
    return comm->real_node[rank] != comm->real_node[comm->rank];
}

void epx_ucx_close(ucp_worker_h worker, ucp_ep_h endpoint)
{
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_EP_CLOSE_FLAG_FORCE,
    };
    int64_t end = epx_deadline_in(CLOSING_MS);
    void *request = ucp_ep_close_nbx(endpoint, &param);

    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS &&
           !epx_deadline_is_over(end))
        ucp_worker_progress(worker);
    if (UCS_PTR_IS_PTR(request))
        ucp_request_free(request);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* transport.c - questions to the list of transports, and windows for a transport that has none. */
#include "transport/transport.h"

#include <stdio.h>
#include <string.h>

#include "core/agree.h"

const struct epx_transport_ops *epx_transport_host_messages(void)
{
    for (const struct epx_listed *entry = epx_transports; entry->name; entry++)
        if (entry->ops && entry->ops->threads && entry->ops->messages)
            return entry->ops;
    return NULL;
}

static int is_named_before(const struct epx_listed *entry)
{
    for (const struct epx_listed *before = epx_transports; before < entry; before++)
        if (before->is_built && strcmp(before->name, entry->name) == 0)
            return 1;
    return 0;
}

void epx_transport_list(char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (const struct epx_listed *entry = epx_transports; entry->name && used < bytes; entry++)
        if (entry->is_built && !is_named_before(entry))
            used += (size_t)snprintf(text + used, bytes - used, " %s", entry->name);
}

static int create_private_window(struct epx_comm *comm, size_t bytes, struct epx_window **window)
{
    struct epx_window *own = epx_window_private(comm->size, comm->rank, bytes);
    int rc = own ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for %zu bytes", bytes);

    rc = epx_comm_agree(comm, rc);
    if (rc != EPX_SUCCESS) {
        epx_window_free(own);
        return rc;
    }
    *window = own;
    return EPX_SUCCESS;
}

int epx_transport_window_create(const struct epx_transport *transport, size_t bytes,
                                struct epx_window **window)
{
    if (!transport->ops->window_create)
        return create_private_window(transport->comm, bytes, window);
    return transport->ops->window_create(transport->state, bytes, window);
}

void epx_transport_window_free(const struct epx_transport *transport, struct epx_window *window)
{
    if (!transport->ops->window_free)
        epx_window_free(window);
    else if (window)
        transport->ops->window_free(transport->state, window);
}

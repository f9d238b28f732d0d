/* SPDX-License-Identifier: BSD-3-Clause */
/* transport.c - the list of transports, in the order that auto tries them, and the choice. */
#include "transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "direct.h"
#include "route.h"
#include "staged.h"

struct listed {
    const char *name, *memory, *description;
    const struct epx_transport_ops *ops; /* NULL = not part of this build */
};

static const struct listed transports[] = {
    {"lsa", "cuda:device", "kernels store into NCCL symmetric windows", NULL},
    {"nccl", "cuda:device", "NCCL send and receive with exact counts", NULL},
    {"shm", "system", "ranks store into each other's shared memory", &epx_transport_shm},
    {"ucx", "system", "UCX messages", NULL},
    {"mpi", "system", "MPI collectives on host buffers", &epx_transport_mpi},
};

enum { NUM_TRANSPORTS = sizeof(transports) / sizeof(transports[0]) };

/* Whether every rank can use it; why tells the first rank's reason. Collective. */
static int usable_on_all(struct epx_comm *comm, const struct listed *entry, int *usable, char *why)
{
    int here = 0, rc;

    snprintf(why, EPX_WHY_MAX, "not part of this build");
    if (entry->ops) {
        snprintf(why, EPX_WHY_MAX, "usable");
        here = entry->ops->usable(comm, why);
    }
    rc = epx_comm_agree(comm, here ? EPX_SUCCESS : epx_fail_quietly(EPX_ERR_TRANSPORT, why));
    *usable = rc == EPX_SUCCESS;
    if (rc == EPX_ERR_TRANSPORT)
        snprintf(why, EPX_WHY_MAX, "%.*s", EPX_WHY_MAX - 1, epx_status_message());
    return rc == EPX_ERR_TRANSPORT ? EPX_SUCCESS : rc;
}

/* That of a finished communicator stays as it is: its late peers and MPI may still touch it. */
static void transport_free(struct epx_transport *transport, const struct epx_comm *comm)
{
    if (!transport || comm->finished)
        return;
    epx_direct_free(transport->direct);
    epx_staged_free(transport->staged);
    transport->ops->free(transport->state);
    free(transport);
}

static int transport_init(struct epx_transport *transport, struct epx_comm *comm)
{
    EPX_TRY(transport->ops->create(comm, &transport->state));
    if (transport->ops->direct)
        return epx_direct_create(comm, transport, &transport->direct);
    return epx_staged_create(comm, transport, &transport->staged);
}

static int make(struct epx_comm *comm, const struct epx_transport_ops *ops,
                struct epx_transport **result)
{
    struct epx_transport *transport = epx_memory_zeroed(1, sizeof(*transport));
    int rc = transport ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for a transport");

    if (transport)
        transport->ops = ops;
    rc = epx_comm_agree(comm, rc);
    *result = transport;
    if (rc == EPX_SUCCESS)
        rc = transport_init(transport, comm);
    if (rc != EPX_SUCCESS && !comm->finished) {
        transport_free(transport, comm);
        *result = NULL;
    }
    return rc;
}

static int attach(struct epx_comm *comm, const struct epx_transport_ops *ops)
{
    EPX_TRY(make(comm, ops, &comm->transport));
    comm->liveness_state = comm->transport->state;
    comm->liveness = ops->liveness;
    return EPX_SUCCESS;
}

static int attach_named(struct epx_comm *comm, const char *name)
{
    char why[EPX_WHY_MAX];
    int usable;

    for (int i = 0; i < NUM_TRANSPORTS; i++) {
        if (strcmp(transports[i].name, name) != 0)
            continue;
        EPX_TRY(usable_on_all(comm, &transports[i], &usable, why));
        EPX_FAIL_IF(!usable, EPX_ERR_TRANSPORT, "transport %s is not usable: %s", name, why);
        return attach(comm, transports[i].ops);
    }
    return epx_fail(EPX_ERR_INTERN, "transport %s is not listed", name);
}

static int attach_first(struct epx_comm *comm)
{
    char why[EPX_WHY_MAX];
    int usable, rc;

    for (int i = 0; i < NUM_TRANSPORTS; i++) {
        if (strcmp(transports[i].memory, "system") != 0)
            continue;
        EPX_TRY(usable_on_all(comm, &transports[i], &usable, why));
        if (!usable) {
            EPX_LOG_INFO("transport %s passed over: %s", transports[i].name, why);
            continue;
        }
        rc = attach(comm, transports[i].ops);
        if (rc == EPX_SUCCESS || comm->finished)
            return rc;
        EPX_LOG_WARN("transport %s passed over: %s", transports[i].name, epx_status_message());
    }
    return epx_fail(EPX_ERR_TRANSPORT, "no transport is usable");
}

int epx_transport_attach(struct epx_comm *comm)
{
    const char *name = epx_param_transports[comm->params.transport];

    EPX_FAIL_IF(comm->params.memory == EPX_MEMORY_CUDA, EPX_ERR_UNSUPPORTED,
                "epx_memory=cuda:device: this build has no transport for device memory");
    EPX_TRY(comm->params.transport ? attach_named(comm, name) : attach_first(comm));
    EPX_LOG_INFO("transport %s: %s", epx_transport_name(comm), comm->transport->ops->description);
    return EPX_SUCCESS;
}

void epx_transport_detach(struct epx_comm *comm)
{
    struct epx_transport *transport = comm->transport;

    if (!transport)
        return;
    comm->liveness = NULL;
    comm->transport = NULL;
    transport_free(comm->spare, comm);
    comm->spare = NULL;
    transport_free(transport, comm);
}

struct epx_transport *epx_transport_of(const struct epx_request *request)
{
    return request->route ? request->route->transport : request->comm->transport;
}

int epx_transport_spare(struct epx_comm *comm, struct epx_transport **spare)
{
    *spare = NULL;
    if (comm->params.transport || comm->threaded || !comm->transport->ops->direct)
        return EPX_SUCCESS;
    if (!comm->spare)
        EPX_TRY(make(comm, &epx_transport_mpi, &comm->spare));
    *spare = comm->spare;
    return EPX_SUCCESS;
}

const char *epx_transport_name(const struct epx_comm *comm)
{
    return comm->transport ? comm->transport->ops->name : "none";
}

int epx_transport_report(MPI_Comm mpi_comm, int index, struct epx_transport_report *report)
{
    struct epx_params params = {0};
    struct epx_comm *comm;
    int rc;

    if (index < 0 || index >= NUM_TRANSPORTS)
        return EPX_ERR_ARG;
    EPX_TRY(epx_comm_create(mpi_comm, &params, epx_params_read(MPI_INFO_NULL, &params), &comm));
    *report = (struct epx_transport_report){transports[index].name, transports[index].memory,
                                            transports[index].description, 0, ""};
    rc = usable_on_all(comm, &transports[index], &report->usable, report->why);
    epx_comm_close(comm);
    return rc;
}

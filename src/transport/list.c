/* SPDX-License-Identifier: BSD-3-Clause */
/* list.c - the list of transports, in the order that auto tries them, and the choice. */
#include "config.h"

#include "transport/transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/direct/direct.h"
#include "coll/hier/hier.h"
#include "coll/staged/staged.h"
#include "core/agree.h"
#include "core/route.h"
#include "transport/module.h"

struct listed {
    const char *name, *memory, *description;
    const struct epx_transport_ops *ops; /* NULL = not part of this build, or of the module */
    size_t in_module;                    /* where the module has it; 0 = it is not there */
    int hier;                          /* ops between nodes, shared memory inside them */
};

#if HAVE_CUDA
#define IPC offsetof(struct epx_module, ipc)
#else
#define IPC 0
#endif

#if HAVE_CUDA && HAVE_NCCL
#define LSA offsetof(struct epx_module, lsa)
#define NCCL offsetof(struct epx_module, nccl)
#else
#define LSA 0
#define NCCL 0
#endif

#if HAVE_UCX
#define UCX &epx_transport_ucx
#else
#define UCX NULL
#endif

#if HAVE_CUDA && HAVE_UCX
#define UCX_DEVICE offsetof(struct epx_module, ucx)
#define UCX_BOUNCE offsetof(struct epx_module, bounce)
#else
#define UCX_DEVICE 0
#define UCX_BOUNCE 0
#endif

static const struct listed transports[] = {
    {"lsa", "cuda:device", "kernels store into NCCL symmetric windows", NULL, LSA, 0},
    {"ipc", "cuda:device", "kernels store into CUDA IPC memory", NULL, IPC, 0},
    {"nccl", "cuda:device", "NCCL messages, exact counts; rows go to a node once", NULL, NCCL, 0},
    {"ucx", "cuda:device", "UCX on device memory; rows go to a node once", NULL, UCX_DEVICE, 0},
    {"ucx", "cuda:device", "UCX through pinned memory; rows go to a node once", NULL, UCX_BOUNCE,
     0},
    {"shm", "system", "ranks store into each other's shared memory", &epx_transport_shm, 0, 0},
    {"shm+ucx", "system", "shared memory inside a node, UCX between nodes", UCX, 0, 1},
    {"ucx", "system", "UCX: stores within a node, messages between nodes", UCX, 0, 0},
    {"shm+mpi", "system", "shared memory inside a node, MPI between nodes", &epx_transport_mpi, 0,
     1},
    {"mpi", "system", "MPI collectives on host buffers", &epx_transport_mpi, 0, 0},
};

enum { NUM_TRANSPORTS = sizeof(transports) / sizeof(transports[0]) };

const struct epx_transport_ops *epx_transport_host_messages(void)
{
    return UCX;
}

static int is_in_build(const struct listed *entry)
{
    return entry->ops || entry->in_module;
}

/* What the build has; NULL and why if nothing. */
static const struct epx_transport_ops *ops_of(const struct listed *entry, char *why)
{
    const struct epx_transport_ops *ops = entry->ops;
    const struct epx_module *module;

    snprintf(why, EPX_WHY_MAX, ops ? "usable" : "not part of this build");
    if (!entry->in_module)
        return ops;
    module = epx_module_open();
    snprintf(why, EPX_WHY_MAX, "%.*s", EPX_WHY_MAX - 1, module ? "usable" : epx_status_message());
    if (module)
        memcpy(&ops, (const char *)module + entry->in_module, sizeof(ops));
    return ops;
}

/* Whether every rank can use it; why tells the first rank's reason. Collective. */
static int usable_on_all(struct epx_comm *comm, const struct listed *entry, int *usable, char *why)
{
    const struct epx_transport_ops *ops = ops_of(entry, why);
    int rc = epx_comm_agree(comm, ops ? EPX_SUCCESS : epx_fail_quietly(EPX_ERR_TRANSPORT, why));

    if (rc == EPX_SUCCESS) {
        int here = (!entry->hier || epx_hier_usable(comm, why)) && ops->usable(comm, why);

        rc = epx_comm_agree(comm, here ? EPX_SUCCESS : epx_fail_quietly(EPX_ERR_TRANSPORT, why));
    }
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
    epx_hier_free(transport->hier);
    epx_staged_free(transport->staged);
    if (transport->device_ops)
        transport->device_ops->free(transport->device);
    transport->ops->free(transport->state);
    free(transport);
}

static int transport_init(struct epx_transport *transport, struct epx_comm *comm, int hier)
{
    EPX_TRY(transport->ops->create(comm, &transport->state));
    if (transport->ops->memory == EPX_MEMORY_CUDA) {
        transport->device_ops = epx_module_open()->device;
        return transport->device_ops->create(comm, transport, &transport->device);
    }
    if (transport->ops->direct)
        return epx_direct_create(comm, transport, &transport->direct);
    EPX_TRY(epx_staged_create(comm, transport, hier, &transport->staged));
    return hier ? epx_hier_create(comm, transport->staged, &transport->hier) : EPX_SUCCESS;
}

static int make(struct epx_comm *comm, const struct listed *entry, struct epx_transport **result)
{
    char why[EPX_WHY_MAX];
    struct epx_transport *transport = epx_memory_zeroed(1, sizeof(*transport));
    int rc = transport ? EPX_SUCCESS : epx_fail(EPX_ERR_NO_MEM, "no memory for a transport");

    if (transport) {
        transport->name = entry->name;
        transport->description = entry->description;
        transport->ops = ops_of(entry, why);
    }
    rc = epx_comm_agree(comm, rc);
    *result = transport;
    if (rc == EPX_SUCCESS)
        rc = transport_init(transport, comm, entry->hier);
    if (rc != EPX_SUCCESS && !comm->finished) {
        transport_free(transport, comm);
        *result = NULL;
    }
    return rc;
}

static int attach(struct epx_comm *comm, const struct listed *entry)
{
    struct epx_transport *transport;

    EPX_TRY(make(comm, entry, &comm->transport));
    transport = comm->transport;
    if (transport->device_ops) {
        comm->liveness_state = transport->device;
        comm->liveness = transport->device_ops->liveness;
    } else {
        comm->liveness_state = transport->state;
        comm->liveness = transport->ops->liveness;
    }
    return EPX_SUCCESS;
}

static int has_memory(const struct epx_comm *comm, const struct listed *entry)
{
    const char *memory = comm->params.memory == EPX_MEMORY_CUDA ? "cuda:device" : "system";

    return strcmp(entry->memory, memory) == 0;
}

/* The next line for the same name and memory: another way to do the same. */
static const struct listed *next_way(const struct listed *entry)
{
    const struct listed *next = entry + 1;

    if (next == transports + NUM_TRANSPORTS || strcmp(next->name, entry->name) != 0 ||
        strcmp(next->memory, entry->memory) != 0)
        return NULL;
    return next;
}

/* The first line for a name, of the communicator's memory if there is one. */
static const struct listed *find_named(const struct epx_comm *comm, const char *name)
{
    const struct listed *named = NULL;

    for (int i = 0; i < NUM_TRANSPORTS; i++) {
        if (strcmp(transports[i].name, name) != 0)
            continue;
        if (has_memory(comm, &transports[i]))
            return &transports[i];
        if (!named)
            named = &transports[i];
    }
    return named;
}

static int attach_named(struct epx_comm *comm, const char *name)
{
    const struct listed *named = find_named(comm, name);
    char why[EPX_WHY_MAX];
    int usable;

    EPX_FAIL_IF(!named, EPX_ERR_INTERN, "transport %s is not listed", name);
    EPX_FAIL_IF(comm->params.memory && !has_memory(comm, named), EPX_ERR_UNSUPPORTED,
                "transport %s is for %s memory", name, named->memory);
    EPX_TRY(usable_on_all(comm, named, &usable, why));
    for (const struct listed *way = next_way(named); !usable && way; way = next_way(way)) {
        EPX_LOG_INFO("transport %s (%s) passed over: %s", name, named->description, why);
        named = way;
        EPX_TRY(usable_on_all(comm, named, &usable, why));
    }
    EPX_FAIL_IF(!usable, EPX_ERR_TRANSPORT, "transport %s is not usable: %s", name, why);
    return attach(comm, named);
}

static int attach_first(struct epx_comm *comm)
{
    char why[EPX_WHY_MAX];
    int usable, rc;

    for (int i = 0; i < NUM_TRANSPORTS; i++) {
        if (!has_memory(comm, &transports[i]))
            continue;
        EPX_TRY(usable_on_all(comm, &transports[i], &usable, why));
        if (!usable) {
            EPX_LOG_INFO("transport %s passed over: %s", transports[i].name, why);
            continue;
        }
        rc = attach(comm, &transports[i]);
        if (rc == EPX_SUCCESS || comm->finished)
            return rc;
        EPX_LOG_WARN("transport %s passed over: %s", transports[i].name, epx_status_message());
    }
    return epx_fail(comm->params.memory == EPX_MEMORY_CUDA ? EPX_ERR_UNSUPPORTED
                                                           : EPX_ERR_TRANSPORT,
                    "no transport is usable: %s", why);
}

static int is_for(const char *name, const char *memory)
{
    for (int i = 0; i < NUM_TRANSPORTS; i++)
        if (is_in_build(&transports[i]) && strcmp(transports[i].name, name) == 0 &&
            strcmp(transports[i].memory, memory) == 0)
            return 1;
    return 0;
}

/* Whether this build has the transport on device memory and on the host's. */
static int is_for_both(const char *name)
{
    return is_for(name, "cuda:device") && is_for(name, "system");
}

/* auto: device memory if every rank has a current CUDA context and no host transport is named. */
static int choose_memory(struct epx_comm *comm)
{
    int64_t anywhere;

    if (comm->params.memory != EPX_MEMORY_AUTO)
        return EPX_SUCCESS;
    if (comm->params.transport && !is_for_both(epx_param_transports[comm->params.transport]))
        return EPX_SUCCESS;
    EPX_TRY(epx_comm_max(comm, !epx_module_has_context(), &anywhere));
    comm->params.memory = anywhere ? EPX_MEMORY_SYSTEM : EPX_MEMORY_CUDA;
    return EPX_SUCCESS;
}

int epx_transport_attach(struct epx_comm *comm)
{
    const char *name = epx_param_transports[comm->params.transport];

    EPX_TRY(choose_memory(comm));
    EPX_TRY(comm->params.transport ? attach_named(comm, name) : attach_first(comm));
    comm->params.memory = comm->transport->ops->memory;
    EPX_LOG_INFO("transport %s: %s", comm->transport->name, comm->transport->description);
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

void epx_transport_retire(struct epx_comm *comm)
{
    struct epx_transport *transport = comm->transport;

    if (transport && transport->device_ops)
        transport->device_ops->retire(transport->device);
}

int epx_device_prepare(struct epx_request *request)
{
    const struct epx_device_ops *ops = epx_transport_device_ops(request->comm);

    if (!ops)
        return 0;
    request->launch = ops->launch;
    request->progress = ops->poll;
    request->ended = ops->ended;
    return 1;
}

struct epx_transport *epx_transport_of(const struct epx_request *request)
{
    return request->route ? request->route->transport : request->comm->transport;
}

int epx_transport_spare(struct epx_comm *comm, struct epx_transport **spare)
{
    *spare = NULL;
    if (comm->params.transport || comm->threaded || !comm->transport->direct)
        return EPX_SUCCESS;
    if (!comm->spare)
        EPX_TRY(make(comm, &transports[NUM_TRANSPORTS - 1], &comm->spare)); /* always usable */
    *spare = comm->spare;
    return EPX_SUCCESS;
}

int epx_transport_private_window(struct epx_comm *comm, size_t bytes, struct epx_window **window)
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

const struct epx_device_ops *epx_transport_device_ops(const struct epx_comm *comm)
{
    return comm->transport ? comm->transport->device_ops : NULL;
}

const char *epx_transport_name(const struct epx_comm *comm)
{
    return comm->transport ? comm->transport->name : "none";
}

/* On other memory. */
static int is_named_before(int index)
{
    for (int i = 0; i < index; i++)
        if (is_in_build(&transports[i]) && strcmp(transports[i].name, transports[index].name) == 0)
            return 1;
    return 0;
}

void epx_transport_list(char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (int i = 0; i < NUM_TRANSPORTS && used < bytes; i++)
        if (is_in_build(&transports[i]) && !is_named_before(i))
            used += (size_t)snprintf(text + used, bytes - used, " %s", transports[i].name);
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

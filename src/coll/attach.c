/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.c - which transport a communicator uses, and on which ground. */
#include "coll/attach.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/ground.h"
#include "control/mpi_module.h"
#include "core/agree.h"
#include "core/birth.h"
#include "transport/module.h"

/* The operations of transport mpi, in the module that can be opened only where MPI is. */
static const struct epx_transport_ops *mpi_ops(char *why)
{
    const struct epx_mpi *mpi = epx_mpi_open();

    snprintf(why, EPX_WHY_MAX, "%.*s", EPX_WHY_MAX - 1, mpi ? "usable" : epx_status_message());
    return mpi ? mpi->transport : NULL;
}

/* The operations of a line of the list; NULL and why if they are not here. */
static const struct epx_transport_ops *ops_of(const struct epx_listed *entry, char *why)
{
    const struct epx_module *module = NULL;

    if (entry->ops || !entry->is_built) {
        snprintf(why, EPX_WHY_MAX, entry->ops ? "usable" : "not part of this build");
        return entry->ops;
    }
    if (entry->memory == EPX_MEMORY_SYSTEM)
        return mpi_ops(why);
    module = epx_module_open();
    snprintf(why, EPX_WHY_MAX, "%.*s", EPX_WHY_MAX - 1, module ? "usable" : epx_status_message());
    return module ? module->transports[entry - epx_transports].ops : NULL;
}

static const struct epx_ground *ground_of(const struct epx_listed *entry,
                                          const struct epx_transport_ops *ops)
{
    if (entry->memory == EPX_MEMORY_CUDA)
        return ops->exchanges ? epx_module_open()->staged : epx_module_open()->direct;
    if (entry->hier)
        return &epx_ground_hier;
    return ops->messages ? &epx_ground_staged : &epx_ground_direct;
}

static int usable_here(struct epx_comm *comm, const struct epx_listed *entry, char *why)
{
    const struct epx_transport_ops *ops = ops_of(entry, why);
    const struct epx_ground *ground = ground_of(entry, ops);

    if (ground->usable && !ground->usable(comm, why))
        return EPX_UNUSABLE;
    return ops->usable(comm, why);
}

/* EPX_USABLE if every rank can use the transport of a line; why tells the first rank's reason.
 * Collective. */
static int usable_on_all(struct epx_comm *comm, const struct epx_listed *entry, int *usable,
                         char *why)
{
    const struct epx_transport_ops *ops = ops_of(entry, why);
    int rc = epx_comm_agree(comm, ops ? EPX_SUCCESS : epx_fail_quietly(EPX_ERR_TRANSPORT, why));

    if (rc == EPX_SUCCESS) {
        int here = usable_here(comm, entry, why);

        rc = epx_comm_agree(
            comm,
            here == EPX_USABLE
                ? EPX_SUCCESS
                : epx_fail_quietly(here == EPX_SHORT ? EPX_ERR_NO_MEM : EPX_ERR_TRANSPORT, why));
    }
    *usable = rc == EPX_SUCCESS ? EPX_USABLE : rc == EPX_ERR_NO_MEM ? EPX_SHORT : EPX_UNUSABLE;
    if (rc != EPX_ERR_TRANSPORT && rc != EPX_ERR_NO_MEM)
        return rc;
    snprintf(why, EPX_WHY_MAX, "%.*s", EPX_WHY_MAX - 1, epx_status_message());
    return EPX_SUCCESS;
}

static void free_struct(struct epx_transport *transport)
{
    if (transport)
        free(transport->state);
    free(transport);
}

/* The transport of a finished communicator stays: late peers and MPI may still touch it. */
static void transport_free(struct epx_transport *transport)
{
    if (!transport || epx_comm_keeps_memory(transport->comm))
        return;
    transport->ground->free(transport);
    transport->ops->free(transport->state);
    free_struct(transport);
}

static int transport_init(struct epx_transport *transport)
{
    EPX_TRY(transport->ops->create(transport));
    return transport->ground->create(transport);
}

static struct epx_transport *allocate(struct epx_comm *comm, const struct epx_listed *entry)
{
    struct epx_transport *transport = epx_memory_zeroed(1, sizeof(*transport));
    char why[EPX_WHY_MAX];

    if (!transport)
        return NULL;
    transport->name = entry->name;
    transport->description = entry->description;
    transport->comm = comm;
    transport->ops = ops_of(entry, why);
    transport->ground = ground_of(entry, transport->ops);
    transport->state = epx_memory_zeroed(1, transport->ops->state_bytes);
    if (transport->state)
        return transport;
    free_struct(transport);
    return NULL;
}

static int make(struct epx_comm *comm, const struct epx_listed *entry,
                struct epx_transport **result)
{
    struct epx_transport *transport = allocate(comm, entry);
    int rc = transport ? EPX_SUCCESS
                       : epx_fail(EPX_ERR_NO_MEM, "no memory for transport %s", entry->name);

    rc = epx_comm_agree(comm, rc);
    if (rc != EPX_SUCCESS) {
        free_struct(transport);
        return rc;
    }
    *result = transport;
    rc = transport_init(transport);
    if (rc != EPX_SUCCESS && !comm->finished) {
        transport_free(transport);
        *result = NULL;
    }
    return rc;
}

static int attach(struct epx_comm *comm, const struct epx_listed *entry)
{
    EPX_TRY(make(comm, entry, &comm->transport));
    comm->liveness = comm->transport->liveness;
    return EPX_SUCCESS;
}

static int has_memory(const struct epx_comm *comm, const struct epx_listed *entry)
{
    return entry->memory ==
           (comm->params.memory == EPX_MEMORY_CUDA ? EPX_MEMORY_CUDA : EPX_MEMORY_SYSTEM);
}

/* The next implementation of a transport: the next line, if it has the same name and memory; or
 * NULL. */
static const struct epx_listed *next_way(const struct epx_listed *entry)
{
    const struct epx_listed *next = entry + 1;

    if (!next->name || strcmp(next->name, entry->name) != 0 || next->memory != entry->memory)
        return NULL;
    return next;
}

/* The first line with this name for the communicator's memory; if there is none, for any memory. */
static const struct epx_listed *find_named(const struct epx_comm *comm, const char *name)
{
    const struct epx_listed *named = NULL;

    for (const struct epx_listed *entry = epx_transports; entry->name; entry++) {
        if (strcmp(entry->name, name) != 0)
            continue;
        if (has_memory(comm, entry))
            return entry;
        if (!named)
            named = entry;
    }
    return named;
}

static int attach_named(struct epx_comm *comm, const char *name)
{
    const struct epx_listed *named = find_named(comm, name);
    char why[EPX_WHY_MAX];
    int usable;

    EPX_FAIL_IF(!named, EPX_ERR_INTERN, "transport %s is not listed", name);
    if (comm->params.memory && !has_memory(comm, named))
        return epx_comm_fail(comm, EPX_ERR_UNSUPPORTED, "transport %s is for %s memory", name,
                             epx_memory_name(named->memory));
    EPX_TRY(usable_on_all(comm, named, &usable, why));
    for (const struct epx_listed *way = next_way(named); usable != EPX_USABLE && way;
         way = next_way(way)) {
        EPX_LOG_INFO("transport %s (%s) passed over: %s", name, named->description, why);
        named = way;
        EPX_TRY(usable_on_all(comm, named, &usable, why));
    }
    if (usable == EPX_SHORT)
        return epx_comm_fail(comm, EPX_ERR_NO_MEM, "no room for transport %s: %s", name, why);
    if (usable != EPX_USABLE)
        return epx_comm_fail(comm, EPX_ERR_TRANSPORT, "transport %s is not usable: %s", name, why);
    return attach(comm, named);
}

/* The first transport that lacked something or could not be set up, and why. */
struct passed {
    const char *name; /* NULL = none */
    char why[EPX_MAX_ERROR_STRING];
};

static void note_passed(struct passed *passed, const char *name, const char *why)
{
    if (passed->name)
        return;
    passed->name = name;
    snprintf(passed->why, sizeof(passed->why), "%s", why);
}

/* Tries a line of the list; comm->transport stays NULL if it cannot be used. */
static int try_line(struct epx_comm *comm, const struct epx_listed *entry, struct passed *passed,
                    char *why)
{
    int usable, rc;

    EPX_TRY(usable_on_all(comm, entry, &usable, why));
    if (usable != EPX_USABLE) {
        EPX_LOG_INFO("transport %s passed over: %s", entry->name, why);
        if (usable == EPX_SHORT)
            note_passed(passed, entry->name, why);
        return EPX_SUCCESS;
    }
    epx_attempt_begin();
    rc = attach(comm, entry);
    epx_attempt_end(rc, !comm->finished);
    if (rc == EPX_SUCCESS || comm->finished)
        return rc;
    EPX_LOG_INFO("transport %s passed over: %s", entry->name, epx_status_message());
    snprintf(why, EPX_WHY_MAX, "%.*s", EPX_WHY_MAX - 1, epx_status_message());
    note_passed(passed, entry->name, epx_status_message());
    return EPX_SUCCESS;
}

static int attach_first(struct epx_comm *comm)
{
    struct passed passed = {.name = NULL};
    char why[EPX_WHY_MAX] = "";

    for (const struct epx_listed *entry = epx_transports; entry->name && !comm->transport; entry++)
        if (has_memory(comm, entry))
            EPX_TRY(try_line(comm, entry, &passed, why));
    if (!comm->transport)
        return epx_comm_fail(
            comm, comm->params.memory == EPX_MEMORY_CUDA ? EPX_ERR_UNSUPPORTED : EPX_ERR_TRANSPORT,
            "no transport is usable: %s", why);
    if (passed.name && comm->rank == 0)
        EPX_LOG_WARN("transport %s is used instead of %s: %s", comm->transport->name, passed.name,
                     passed.why);
    return EPX_SUCCESS;
}

static int is_for(const char *name, enum epx_memory_kind memory)
{
    for (const struct epx_listed *entry = epx_transports; entry->name; entry++)
        if (entry->is_built && entry->memory == memory && strcmp(entry->name, name) == 0)
            return 1;
    return 0;
}

/* Whether this build has the transport on device memory and on the host's. */
static int is_for_both(const char *name)
{
    return is_for(name, EPX_MEMORY_CUDA) && is_for(name, EPX_MEMORY_SYSTEM);
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
    if (comm->params.memory == EPX_MEMORY_SYSTEM)
        epx_module_find_driver();
    EPX_LOG_INFO("transport %s: %s", comm->transport->name, comm->transport->description);
    return EPX_SUCCESS;
}

void epx_transport_detach(struct epx_comm *comm)
{
    struct epx_transport *transport = comm->transport;

    if (!transport)
        return;
    comm->liveness.ops = NULL;
    comm->transport = NULL;
    transport_free(comm->spare);
    comm->spare = NULL;
    transport_free(transport);
}

void epx_transport_retire(struct epx_comm *comm)
{
    struct epx_transport *transport = comm->transport;

    if (transport && transport->device_ops)
        transport->device_ops->retire(transport->device);
}

/* The last line, mpi, is usable wherever MPI started the ranks. */
static const struct epx_listed *last_listed(void)
{
    const struct epx_listed *entry = epx_transports;

    while (entry[1].name)
        entry++;
    return entry;
}

int epx_transport_may_spare(const struct epx_comm *comm)
{
    return comm->by_mpi && !comm->params.transport && !comm->threaded && comm->transport->direct;
}

void epx_transport_tell(const struct epx_comm *comm, int *told, const char *instead,
                        const char *why)
{
    if (comm->rank == 0)
        epx_log(*told ? EPX_LOG_LEVEL_INFO : EPX_LOG_LEVEL_WARN, "%s: %s", instead, why);
    *told = 1;
}

int epx_transport_spare(struct epx_comm *comm, struct epx_transport **spare)
{
    if (!comm->spare)
        EPX_TRY(make(comm, last_listed(), &comm->spare));
    *spare = comm->spare;
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

int epx_transport_lines(void)
{
    return (int)(last_listed() - epx_transports) + 1;
}

int epx_transport_report(const struct epx_origin *origin, int index,
                         struct epx_transport_report *report)
{
    const struct epx_listed *entry = &epx_transports[index];
    struct epx_params params = {0};
    struct epx_comm *comm;
    int usable, rc;

    epx_attempt_begin();
    rc = epx_params_read(NULL, &params);
    comm = epx_comm_allocate(&params, &rc);
    epx_attempt_end(rc, comm != NULL);
    if (!comm)
        return rc;
    *report = (struct epx_transport_report){.name = entry->name,
                                            .memory = epx_memory_name(entry->memory),
                                            .description = entry->description};
    rc = epx_comm_begin(comm, origin, rc);
    if (rc == EPX_SUCCESS)
        rc = usable_on_all(comm, entry, &usable, report->why);
    report->usable = rc == EPX_SUCCESS && usable == EPX_USABLE;
    rc = epx_birth_settle(comm, rc);
    epx_birth_end(comm);
    epx_comm_close(comm);
    return rc;
}

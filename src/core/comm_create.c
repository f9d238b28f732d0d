/* SPDX-License-Identifier: BSD-3-Clause */
/* comm_create.c - how ranks make a communicator: its control plane, its hints, its nodes. */
#include "core/comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/machine.h"
#include "base/machine_key.h"
#include "control/contact.h"
#include "control/control_sockets.h"
#include "control/mpi_module.h"
#include "core/agree.h"
#include "core/birth.h"
#include "core/graph/graph.h"

/* Numbers the nodes by their lowest rank, given the key of each rank's machine. */
static int number_nodes(const int64_t *keys, int size, int *node)
{
    int nodes = 0;

    for (int r = 0; r < size; r++) {
        int first = 0;

        while (keys[first] != keys[r])
            first++;
        node[r] = first == r ? nodes++ : node[first];
    }
    return nodes;
}

static int find_machine(int64_t *key)
{
    struct utsname machine;

    EPX_FAIL_IF(uname(&machine) != 0, EPX_ERR_TRANSPORT, "uname: %s", strerror(errno));
    *key = epx_machine_key(machine.nodename);
    return EPX_SUCCESS;
}

static int allocate_ranks(struct epx_comm *comm)
{
    size_t ranks = (size_t)comm->size;

    comm->node = calloc(ranks, sizeof(*comm->node));
    comm->real_node = calloc(ranks, sizeof(*comm->real_node));
    comm->agreement.gathered = calloc(ranks, sizeof(*comm->agreement.gathered));
    comm->answers = calloc(ranks, sizeof(*comm->answers));
    EPX_FAIL_IF(!comm->node || !comm->real_node || !comm->agreement.gathered || !comm->answers,
                EPX_ERR_NO_MEM, "no memory for %d ranks", comm->size);
    return epx_waits_create(&comm->waits, comm->rank, comm->size);
}

/* Sets the nodes that the hint pretends; returns whether the ranks of each are on one real node,
 * hence share memory. */
static int pretend_nodes(struct epx_comm *comm, int ranks_per_node)
{
    int share = 1;

    for (int r = 0; r < comm->size; r++) {
        comm->node[r] = r / ranks_per_node;
        share &= comm->real_node[r] == comm->real_node[r / ranks_per_node * ranks_per_node];
    }
    comm->num_nodes = comm->node[comm->size - 1] + 1;
    return share;
}

/* own_rc is this rank's result so far. */
static int find_nodes(struct epx_comm *comm, int own_rc)
{
    int64_t *keys = comm->agreement.gathered;
    int per_node = (int)comm->params.ranks_per_node;
    int64_t key = 0;

    EPX_TRY(epx_comm_agree(comm, own_rc == EPX_SUCCESS ? find_machine(&key) : own_rc));
    EPX_TRY(epx_comm_allgather(comm, key, keys));
    comm->num_nodes = comm->real_nodes = number_nodes(keys, comm->size, comm->real_node);
    memcpy(comm->node, comm->real_node, (size_t)comm->size * sizeof(*comm->node));
    comm->nodes_share_memory = !per_node || pretend_nodes(comm, per_node);
    return EPX_SUCCESS;
}

/* How crowded this rank's CPUs are: 0 if each rank that may use them can have one of its own, else
 * how many ranks share them, in the bits above the lowest 16, and how many CPUs there are. */
static int64_t find_crowding(const struct epx_comm *comm, int64_t cpus, const int64_t *all_cpus)
{
    const int *node = comm->real_node;
    int64_t sharing = 0, num = cpus & EPX_MACHINE_MOST_CPUS;

    for (int r = 0; r < comm->size; r++)
        sharing += node[r] == node[comm->rank] && all_cpus[r] == cpus;
    return sharing > num ? sharing << 16 | num : 0;
}

/* Warns once a process if ranks share CPUs: all times are those of ranks that wait for one, and
 * nothing else says why they are long. */
static int warn_of_crowding(struct epx_comm *comm)
{
    static atomic_int told;
    int64_t cpus = epx_machine_cpus(), most;

    EPX_TRY(epx_comm_allgather(comm, cpus, NULL));
    EPX_TRY(epx_comm_max(comm, find_crowding(comm, cpus, comm->agreement.gathered), &most));
    if (most && comm->rank == 0 && !atomic_exchange(&told, 1)) {
        int num = (int)(most & EPX_MACHINE_MOST_CPUS);

        EPX_LOG_WARN("%lld ranks share %d CPU%s: ranks wait for each other to be scheduled, and "
                     "that is in every time",
                     (long long)(most >> 16), num, num == 1 ? "" : "s");
    }
    return EPX_SUCCESS;
}

static int64_t hash_params(const struct epx_comm *comm)
{
    uint64_t hash = 0;

    for (const struct epx_param *p = epx_param_table; p->name; p++)
        if (!p->per_rank)
            hash = (hash ^ (uint64_t)epx_param_value(p, &comm->params)) * 0x9e3779b97f4a7c15;
    return (int64_t)hash;
}

/* Almost always all hints are the same: that is found out at once. Else the first that differs is
 * looked for. */
static int same_params(struct epx_comm *comm)
{
    int same;

    EPX_TRY(epx_comm_equal(comm, hash_params(comm), &same));
    if (same)
        return EPX_SUCCESS;
    for (const struct epx_param *p = epx_param_table; p->name; p++)
        if (!p->per_rank)
            EPX_TRY(epx_comm_same_word(comm, p->name, epx_param_value(p, &comm->params), p->words));
    return epx_fail(EPX_ERR_INTERN, "hints differ, but no hint does");
}

static int prepare(struct epx_comm *comm)
{
    EPX_TRY(allocate_ranks(comm));
    comm->everyone_free = epx_graph_destroy;
    EPX_TRY(epx_graph_of_everyone(comm, &comm->everyone));
    return epx_birth_begin(comm);
}

/* Either all ranks can send letters afterwards or none. */
static int prepare_all(struct epx_comm *comm)
{
    int rc = epx_comm_agree(comm, prepare(comm));

    if (rc != EPX_SUCCESS)
        epx_birth_end(comm);
    return rc;
}

/* By the control plane in force, which sockets shall replace. */
static int gather_for_contact(const void *own, void *all, size_t bytes, void *comm)
{
    return epx_comm_allgather_bytes(comm, own, (int)bytes, all);
}

/* Local: what the ranks need to meet. Without sockets there may be a contact, to tell of that. */
static int open_contact(struct epx_comm *comm, const struct epx_contact_group *group,
                        struct epx_sockets **sockets, struct epx_contact **contact)
{
    int rc = epx_sockets_create(comm->rank, comm->size, sockets);
    int open_rc =
        epx_contact_open(group, *sockets ? epx_sockets_connections(*sockets) : NULL, contact);

    return rc ? rc : open_rc;
}

/* Collective: rc is this rank's result so far; all fail if one does. Without a contact this rank
 * cannot tell the others, unless they have another control plane by now. */
static int make_contact(struct epx_comm *comm, struct epx_contact *contact, int rc)
{
    if (comm->control.ops)
        EPX_TRY(epx_comm_agree(comm, rc));
    if (!contact)
        return rc;
    EPX_TRY(epx_contact_tell(contact, comm->params.interface, rc));
    rc = epx_comm_await(comm, (struct epx_joint){epx_contact_done, contact});
    if (rc != EPX_SUCCESS) {
        epx_contact_give_up(contact, rc, epx_status_message());
        return rc;
    }
    rc = epx_contact_result(contact);
    return comm->control.ops ? epx_comm_agree(comm, rc) : rc;
}

/* Collective: connects the ranks. own_rc is this rank's result so far. */
static int connect_ranks(struct epx_comm *comm, const struct epx_contact_group *group, int own_rc)
{
    struct epx_sockets *sockets = NULL;
    struct epx_contact *contact = NULL;
    char own_message[EPX_MAX_ERROR_STRING];
    int rc;

    snprintf(own_message, sizeof(own_message), "%s", epx_status_message());
    rc = open_contact(comm, group, &sockets, &contact);
    if (own_rc != EPX_SUCCESS)
        rc = epx_fail_quietly(own_rc, own_message);
    rc = make_contact(comm, contact, rc);
    epx_contact_free(contact);
    if (rc != EPX_SUCCESS) {
        epx_sockets_free(sockets);
        return rc;
    }
    epx_lock();
    comm->control = (struct epx_control){&epx_control_sockets, sockets};
    epx_unlock();
    return EPX_SUCCESS;
}

/* Where the hint wants sockets on all ranks. If it differs, same_params says so later. */
static int replace_mpi(struct epx_comm *comm)
{
    const struct epx_contact_group group = {comm->rank, comm->size, gather_for_contact, comm, 1};
    int equal;

    EPX_TRY(epx_comm_equal(comm, comm->params.control, &equal));
    if (!equal || comm->params.control != EPX_CONTROL_SOCKETS)
        return EPX_SUCCESS;
    return connect_ranks(comm, &group, EPX_SUCCESS);
}

/* Logs no error; own_rc is one that was not logged, either. */
static int confirm(struct epx_comm *comm, int own_rc)
{
    int rc = own_rc;

    if (rc != EPX_SUCCESS)
        return rc;
    epx_attempt_begin();
    rc = epx_birth_confirm(comm);
    return epx_attempt_end(rc, 1);
}

/* Collective: where the ranks are. own_rc is this rank's result so far. The hint epx_control, which
 * is the same on all ranks, gets what is in force. */
static int look_around(struct epx_comm *comm, int own_rc)
{
    comm->params.control =
        comm->control.ops == &epx_control_sockets ? EPX_CONTROL_SOCKETS : EPX_CONTROL_MPI;
    EPX_TRY(find_nodes(comm, own_rc));
    return warn_of_crowding(comm);
}

/* Collective, once ranks have a control plane: whether all of them go on. */
static int meet(struct epx_comm *comm, int own_rc)
{
    EPX_TRY(prepare_all(comm));
    return epx_comm_agree_aloud(comm, confirm(comm, own_rc));
}

/* The communicator for the control plane comes first: on it ranks learn who does not come. */
static int begin_by_mpi(struct epx_comm *comm, MPI_Comm original, int own_rc)
{
    const struct epx_mpi *mpi = epx_mpi_open();

    EPX_TRY(mpi->rank(original, &comm->rank, &comm->size));
    epx_comm_enlist(comm);
    EPX_TRY(mpi->begin(comm, original));
    EPX_TRY(replace_mpi(comm));
    EPX_TRY(meet(comm, own_rc));
    EPX_TRY(mpi->add_user(comm, original));
    EPX_TRY(same_params(comm));
    return look_around(comm, mpi->name_user(comm, original));
}

static int begin_from(struct epx_comm *comm, const struct epx_contact_group *group, int own_rc)
{
    comm->rank = group->rank;
    comm->size = group->size;
    epx_comm_does_without_mpi(comm);
    epx_comm_enlist(comm);
    EPX_TRY(connect_ranks(comm, group, own_rc));
    EPX_TRY(meet(comm, EPX_SUCCESS));
    EPX_TRY(same_params(comm));
    return look_around(comm, EPX_SUCCESS);
}

int epx_comm_begin(struct epx_comm *comm, const struct epx_origin *origin, int own_rc)
{
    int rc;

    epx_trace_begin();
    rc = origin->group ? begin_from(comm, origin->group, own_rc)
                       : begin_by_mpi(comm, origin->comm, own_rc);
    epx_lock();
    if (rc == EPX_SUCCESS)
        epx_trace_comm(&comm->traced, comm->rank, comm->size);
    comm->waits.traced = &comm->traced;
    epx_unlock();
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* api_create.c - EPX_Comm_create, EPX_Comm_create_from. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/profile.h"
#include "control/contact.h"

EPX_PROFILED(Comm_create)
EPX_PROFILED(Comm_create_from)

/* Allocates with the hints that were given. */
static struct epx_comm *begin(const struct epx_hints *hints, int warns, int *rc)
{
    struct epx_params params = {0};
    int read_rc = epx_params_read(hints, &params);

    *rc = *rc ? *rc : read_rc;
    if (*rc == EPX_SUCCESS && warns)
        epx_params_warn(hints);
    return epx_comm_allocate(&params, rc);
}

/* Reads the hints and allocates. An error is logged only if the result is NULL: else the ranks
 * learn it from each other, and one of them logs it. */
static struct epx_comm *begin_by_mpi(MPI_Comm comm, MPI_Info info, int *rc)
{
    const struct epx_mpi *mpi = epx_mpi_open();
    struct epx_hints hints = {.num_unknown = 0};
    struct epx_comm *created;
    int rank = -1, size;

    epx_attempt_begin();
    *rc = epx_api_setup();
    if (*rc == EPX_SUCCESS)
        *rc = mpi->read_info(info, epx_hints_add, &hints);
    if (*rc == EPX_SUCCESS)
        *rc = mpi->rank(comm, &rank, &size);
    created = begin(&hints, rank == 0, rc);
    epx_attempt_end(*rc, created != NULL);
    return created;
}

static int comm_create(MPI_Comm comm, MPI_Info info, struct epx_comm **newcomm)
{
    const struct epx_origin origin = {.comm = comm};
    struct epx_comm *created;
    int rc;

    EPX_TRY(epx_mpi_open()->check_comm(comm));
    created = begin_by_mpi(comm, info, &rc);
    return epx_api_make_comm(created, &origin, rc, newcomm);
}

/*
 * EPX_Comm_create - make a communicator for expert parallelism from an MPI communicator.
 *
 * Collective, blocking. comm is duplicated, its error handler inherited.
 * Input: comm, an intracommunicator; info, hints (epx_hints(7)) or MPI_INFO_NULL.
 * Output: newcomm, EPX_COMM_NULL on error.
 * Errors: EPX_ERR_COMM (MPI_COMM_NULL, intercommunicator), EPX_ERR_INFO (a hint's value),
 * EPX_ERR_ARG (newcomm NULL, hints that differ across ranks), EPX_ERR_TRANSPORT,
 * EPX_ERR_UNSUPPORTED, EPX_ERR_NO_MEM, EPX_ERR_TIMEOUT, EPX_ERR_NOT_INITIALIZED. All ranks get
 * the same error. The error handler of comm is called; for MPI_COMM_NULL that of MPI_COMM_WORLD.
 * See also: EPX_Comm_create_from, EPX_Comm_free, EPX_Comm_get_info.
 */
int EPX_Comm_create(MPI_Comm comm, MPI_Info info, EPX_Comm *newcomm)
{
    if (newcomm)
        *newcomm = EPX_COMM_NULL;
    EPX_TRY(epx_api_enter_mpi(__func__));
    if (!newcomm)
        return epx_api_return_to(&comm, epx_fail(EPX_ERR_ARG, "newcomm is NULL"));
    return epx_api_return_to(&comm, comm_create(comm, info, newcomm));
}

static int check_bootstrap(const EPX_Bootstrap *bootstrap, const EPX_Comm *newcomm)
{
    EPX_FAIL_IF(!newcomm, EPX_ERR_ARG, "newcomm is NULL");
    EPX_FAIL_IF(!bootstrap, EPX_ERR_ARG, "bootstrap is NULL");
    EPX_FAIL_IF(bootstrap->size < sizeof(*bootstrap), EPX_ERR_ARG,
                "bootstrap.size is %zu, want sizeof(EPX_Bootstrap), %zu", bootstrap->size,
                sizeof(*bootstrap));
    EPX_FAIL_IF(!bootstrap->allgather, EPX_ERR_ARG, "bootstrap.allgather is NULL");
    EPX_FAIL_IF(bootstrap->num_ranks < 1, EPX_ERR_ARG, "bootstrap.num_ranks is %d",
                bootstrap->num_ranks);
    EPX_FAIL_IF(bootstrap->rank < 0 || bootstrap->rank >= bootstrap->num_ranks, EPX_ERR_ARG,
                "bootstrap.rank is %d, want 0 to %d", bootstrap->rank, bootstrap->num_ranks - 1);
    return EPX_SUCCESS;
}

/* Reads one hint, NAME=VALUE. */
static int read_hint(const char *text, struct epx_hints *hints)
{
    char name[EPX_PARAM_NAME_MAX];
    const char *equals = strchr(text, '=');

    EPX_FAIL_IF(!equals || equals - text >= (int)sizeof(name), EPX_ERR_INFO,
                "hint \"%.64s\" is no name=value", text);
    snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
    epx_hints_add(hints, name, equals + 1);
    return EPX_SUCCESS;
}

static int comm_create_from(const EPX_Bootstrap *bootstrap, const char *const texts[],
                            struct epx_comm **newcomm)
{
    const struct epx_contact_group group = {bootstrap->rank, bootstrap->num_ranks,
                                            bootstrap->allgather, bootstrap->arg, 0};
    const struct epx_origin origin = {.group = &group};
    struct epx_hints hints = {.num_unknown = 0};
    struct epx_comm *created;
    int rc = EPX_SUCCESS;

    epx_api_name_rank(bootstrap->rank);
    epx_attempt_begin();
    for (int i = 0; texts && texts[i] && rc == EPX_SUCCESS; i++)
        rc = read_hint(texts[i], &hints);
    created = begin(&hints, bootstrap->rank == 0, &rc);
    epx_attempt_end(rc, created != NULL);
    return epx_api_make_comm(created, &origin, rc, newcomm);
}

/*
 * EPX_Comm_create_from - make a communicator of ranks that MPI need not have started.
 *
 * Collective over the num_ranks of bootstrap, blocking. All transports but mpi and shm+mpi can be
 * used; MPI is not called. Afterwards ranks agree over sockets of the library's own.
 * Input: bootstrap: the rank, how many there are, and allgather, which is called a few times by
 * this thread within this call, on all ranks alike: it copies `bytes` bytes from own of each rank
 * to all, [num_ranks][bytes], on each rank, and returns 0, or another number if it fails; arg is
 * handed to it. hints: NULL, or texts "name=value", as epx_hints(7) has them, then NULL.
 * Output: newcomm, EPX_COMM_NULL on error.
 * Errors: as EPX_Comm_create; EPX_ERR_ARG for a bootstrap that is not valid, an allgather that
 * fails or gives what the ranks did not give. There is no error handler to call.
 * See also: EPX_Comm_create, EPX_Comm_free.
 */
int EPX_Comm_create_from(const EPX_Bootstrap *bootstrap, const char *const hints[],
                         EPX_Comm *newcomm)
{
    epx_status_enter(__func__);
    if (newcomm)
        *newcomm = EPX_COMM_NULL;
    EPX_TRY(check_bootstrap(bootstrap, newcomm));
    return comm_create_from(bootstrap, hints, newcomm);
}

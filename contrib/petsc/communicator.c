/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.c - caches an EPX communicator in PETSc's own communicator, which all stars of a
   program's communicator share and which lives as long as one of them. */
#include "communicator.h"

static int key = MPI_KEYVAL_INVALID; /* of the attribute: an EPX_Comm */

/* MPI calls this on all ranks when they free the communicator. What fails stays with EPX, which
   frees it while MPI finalizes. */
static int free_with_communicator(MPI_Comm comm, int keyval, void *value, void *state)
{
    EPX_Comm epx = value;

    (void)comm;
    (void)keyval;
    (void)state;
    (void)EPX_Comm_free(&epx);
    return MPI_SUCCESS;
}

/* MPI keeps the attributes of a key that is freed. */
static PetscErrorCode free_key(void)
{
    PetscFunctionBegin;
    if (key != MPI_KEYVAL_INVALID)
        PetscCallMPI(MPI_Comm_free_keyval(&key));
    PetscFunctionReturn(0);
}

static PetscErrorCode make_key(void)
{
    PetscFunctionBegin;
    if (key == MPI_KEYVAL_INVALID) {
        PetscCallMPI(
            MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_with_communicator, &key, NULL));
        PetscCall(PetscRegisterFinalize(free_key));
    }
    PetscFunctionReturn(0);
}

/* Stars of this type have their data in host memory. Errors come back as codes, whatever the
   handler of comm does with errors of MPI. */
static PetscErrorCode create(MPI_Comm comm, EPX_Comm *epx)
{
    MPI_Errhandler handler;
    MPI_Info info;
    int code;

    PetscFunctionBegin;
    PetscCallMPI(MPI_Info_create(&info));
    PetscCallMPI(MPI_Info_set(info, "epx_memory", "system"));
    PetscCallMPI(MPI_Comm_get_errhandler(comm, &handler));
    PetscCallMPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    code = EPX_Comm_create(comm, info, epx);
    PetscCallMPI(MPI_Comm_set_errhandler(comm, handler));
    if (handler != MPI_ERRHANDLER_NULL)
        PetscCallMPI(MPI_Errhandler_free(&handler));
    PetscCallMPI(MPI_Info_free(&info));
    PetscCallEPX(code);
    PetscFunctionReturn(0);
}

PetscErrorCode communicator_of(MPI_Comm comm, EPX_Comm *epx)
{
    PetscMPIInt found;

    PetscFunctionBegin;
    PetscCall(make_key());
    PetscCallMPI(MPI_Comm_get_attr(comm, key, epx, &found));
    if (!found) {
        PetscCall(create(comm, epx));
        PetscCallMPI(MPI_Comm_set_attr(comm, key, *epx));
    }
    PetscFunctionReturn(0);
}

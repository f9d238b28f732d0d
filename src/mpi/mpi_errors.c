/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_errors.c - codes of EPX among those of MPI, the error handlers, and the hook of
 * MPI_Finalize. */
#include <stdio.h>

#include "mpi/mpi_parts.h"

static int mpi_codes[EPX_ERR_LASTCODE]; /* 0 = not registered */
static void (*leave_library)(void);

static int add_codes(void)
{
    int error_class;
    char text[MPI_MAX_ERROR_STRING];

    EPX_TRY_MPI(MPI_Add_error_class(&error_class));
    EPX_TRY_MPI(MPI_Add_error_string(error_class, "EPX error"));
    for (int code = 1; code < EPX_ERR_LASTCODE; code++) {
        snprintf(text, sizeof(text), "EPX: %s", epx_status_text(code));
        EPX_TRY_MPI(MPI_Add_error_code(error_class, &mpi_codes[code]));
        EPX_TRY_MPI(MPI_Add_error_string(mpi_codes[code], text));
    }
    return EPX_SUCCESS;
}

/* Called by MPI_Finalize while MPI still works. */
static int leave(MPI_Comm self, int keyval, void *attribute, void *state)
{
    (void)self;
    (void)keyval;
    (void)attribute;
    (void)state;
    leave_library();
    return MPI_SUCCESS;
}

static int add_hook(void)
{
    int keyval;

    EPX_TRY_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, leave, &keyval, NULL));
    EPX_TRY_MPI(MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL));
    EPX_TRY_MPI(MPI_Comm_free_keyval(&keyval));
    return EPX_SUCCESS;
}

int epx_mpi_set_up(void (*leaving)(void), int *world_rank)
{
    leave_library = leaving;
    EPX_TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, world_rank));
    EPX_TRY(add_codes());
    return add_hook();
}

void epx_mpi_call_errhandler(const MPI_Comm *comm, int error)
{
    MPI_Comm_call_errhandler(!comm || *comm == MPI_COMM_NULL ? MPI_COMM_WORLD : *comm,
                             mpi_codes[error] ? mpi_codes[error] : MPI_ERR_OTHER);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* communicator.h - the EPX communicator of an MPI communicator, and errors of EPX as PETSc's. */
#ifndef EPX_PETSC_COMMUNICATOR_H
#define EPX_PETSC_COMMUNICATOR_H

#include <petscsys.h>

#include "epx.h"

/* Collective: the communicator is made by the first call, and freed together with comm. */
PetscErrorCode communicator_of(MPI_Comm comm, EPX_Comm *epx);

/* Ends the calling function with an error of PETSc if a call of EPX fails. */
#define PetscCallEPX(call)                                                                         \
    do {                                                                                           \
        const int epx_code_ = (call);                                                              \
        if (PetscUnlikely(epx_code_ != EPX_SUCCESS)) {                                             \
            char epx_message_[EPX_MAX_ERROR_STRING] = "";                                          \
            int epx_length_;                                                                       \
            (void)EPX_Get_error_message(epx_message_, &epx_length_);                               \
            SETERRQ(PETSC_COMM_SELF, PETSC_ERR_LIB, "EPX error %d: %s", epx_code_, epx_message_);  \
        }                                                                                          \
    } while (0)

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* control_mpi.h - a control plane by MPI, on a communicator that nobody else uses. */
#ifndef EPX_CONTROL_CONTROL_MPI_H
#define EPX_CONTROL_CONTROL_MPI_H

#include "control/control.h"

/* Returns EPX_ERR_MPI, logged, if a call of MPI fails. */
#define EPX_TRY_MPI(call)                                                                          \
    do {                                                                                           \
        int epx_rc_ = (call);                                                                      \
        if (epx_rc_ != MPI_SUCCESS)                                                                \
            return epx_fail_mpi(epx_rc_, #call);                                                   \
    } while (0)
int epx_fail_mpi(int mpi_error, const char *call);

/* Its state: the caller's, with comm set, whose errors return. */
struct epx_traffic {
    MPI_Comm comm;
    MPI_Request collective; /* the one under way */
};

/* In the module libepx_mpi. */
extern const struct epx_control_ops epx_control_mpi;

#endif

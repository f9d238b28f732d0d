/* SPDX-License-Identifier: BSD-3-Clause */
/* control_mpi.h - a control plane by MPI, on a communicator that nobody else uses. */
#ifndef EPX_CONTROL_CONTROL_MPI_H
#define EPX_CONTROL_CONTROL_MPI_H

#include "control/control.h"

/* Its state: the caller's, with comm set, whose errors return. */
struct epx_traffic {
    MPI_Comm comm;
    MPI_Request collective; /* the one under way */
};

extern const struct epx_control_ops epx_control_mpi;

#endif

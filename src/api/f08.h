/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * f08.h - what the Fortran module epx_f08 calls where a Fortran handle or status has to become C's.
 * Exported for the module alone, which calls everything else by the names of epx.h.
 * Fortran handles are integers of C's int here.
 */
#ifndef EPX_API_F08_H
#define EPX_API_F08_H

#include "epx.h"

/* What a request completed with; error is -1 if its status is to be left alone. */
struct epx_f08_outcome {
    int64_t rows;
    int error;
};

int epx_f08_comm_create(int comm, int info, EPX_Comm *newcomm);
int epx_f08_comm_get_info(EPX_Comm comm, int *info_used);
int epx_f08_comm_set_errhandler(EPX_Comm comm, int errhandler);

int epx_f08_wait(EPX_Request *request, struct epx_f08_outcome *outcome);
int epx_f08_test(EPX_Request *request, int *flag, struct epx_f08_outcome *outcome);
int epx_f08_waitall(int n, EPX_Request requests[], struct epx_f08_outcome outcomes[]);

/* The communicator of a graph, NULL if it is none. */
EPX_Comm epx_f08_graph_comm(EPX_Graph graph);
/* Fails as the function would: its buffer is not contiguous. comm or route is NULL. */
int epx_f08_refuse(const char *function, const char *buffer, EPX_Comm comm, EPX_Route route);

#endif

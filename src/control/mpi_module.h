/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_module.h - what the library asks of MPI. All that calls MPI is in src/mpi, control_mpi.c and
 * transport_mpi.c, which are a module of their own, libepx_mpi: it is opened when a function first
 * needs MPI, so that libepx can be loaded and used where there is none.
 */
#ifndef EPX_CONTROL_MPI_MODULE_H
#define EPX_CONTROL_MPI_MODULE_H

#include "base/status.h"

struct epx_comm;
struct epx_transport_ops;

enum { EPX_MPI_MODULE_VERSION = 2 };

struct epx_mpi {
    int version;
    const struct epx_transport_ops *transport; /* mpi, also between nodes */

    /* Local: EPX_ERR_NOT_INITIALIZED before MPI_Init and after MPI_Finalize; or just whether it is
     * in between. The rest is called in between only. */
    int (*check)(void);
    int (*works)(void);
    /* Lets the user's own messages move. */
    void (*progress)(void);
    /* Local, once: registers the error codes, and what MPI_Finalize calls while MPI still works.
     * Gives this process's rank in MPI_COMM_WORLD. */
    int (*set_up)(void (*leave)(void), int *world_rank);
    /* Local: calls the error handler of comm, or that of MPI_COMM_WORLD if comm is
     * MPI_COMM_NULL or the pointer is NULL, with the code for an error of EPX. */
    void (*call_errhandler)(const MPI_Comm *comm, int error);

    /* Local: EPX_ERR_COMM unless comm is an intracommunicator. */
    int (*check_comm)(MPI_Comm comm);
    int (*rank)(MPI_Comm comm, int *rank, int *size);
    /* Collective: the communicator for the control plane by MPI, which is in force then. */
    int (*begin)(struct epx_comm *comm, MPI_Comm original);
    /* Collective: the duplicate whose error handler is called. Local: its name. */
    int (*add_user)(struct epx_comm *comm, MPI_Comm original);
    int (*name_user)(const struct epx_comm *comm, MPI_Comm original);
    /* Local: frees both duplicates, as far as they were made. */
    void (*close)(struct epx_comm *comm);
    int (*set_errhandler)(struct epx_comm *comm, MPI_Errhandler errhandler);

    /* Local: how many sources and destinations the topology of the user's communicator gives this
     * rank, EPX_ERR_ARG if it has none; and these. */
    int (*degrees)(const struct epx_comm *comm, int *indegree, int *outdegree);
    int (*neighbors)(const struct epx_comm *comm, int indegree, int *sources, int outdegree,
                     int *destinations);

    /* Local: calls look with each key and value of info, which may be MPI_INFO_NULL. */
    int (*read_info)(MPI_Info info, void (*look)(void *arg, const char *key, const char *value),
                     void *arg);
    int (*create_info)(MPI_Info *info);
    int (*set_info)(MPI_Info info, const char *key, const char *value);
    void (*free_info)(MPI_Info *info);
    /* Local: the elements of MPI_BYTE of a status. */
    void (*set_elements)(MPI_Status *status, int64_t elements);
    int64_t (*get_elements)(const MPI_Status *status);
    /* Local: the name of a datatype of MPI, and what to give EPX instead; NULL = it is none. */
    const char *(*datatype_name)(int datatype, const char **wanted);
    /* Local: Fortran's handles. */
    MPI_Comm (*comm_of)(int handle);
    MPI_Info (*info_of)(int handle);
    MPI_Errhandler (*errhandler_of)(int handle);
    int (*handle_of)(MPI_Info info);
};

/* Opens the module at the first call. NULL if that fails; epx_status_message then says why. A
 * program that is linked with the module has it without opening anything (mpi_linked.c). */
const struct epx_mpi *epx_mpi_open(void);

#endif

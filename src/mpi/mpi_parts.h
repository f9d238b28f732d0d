/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_parts.h - the parts of the module libepx_mpi; control/mpi_module.h says what each does. */
#ifndef EPX_MPI_MPI_PARTS_H
#define EPX_MPI_MPI_PARTS_H

#include "control/control_mpi.h"
#include "control/mpi_module.h"
#include "core/comm.h"

/* mpi_comms.c */
int epx_mpi_check_comm(MPI_Comm comm);
int epx_mpi_rank(MPI_Comm comm, int *rank, int *size);
int epx_mpi_begin(struct epx_comm *comm, MPI_Comm original);
int epx_mpi_add_user(struct epx_comm *comm, MPI_Comm original);
int epx_mpi_name_user(const struct epx_comm *comm, MPI_Comm original);
void epx_mpi_close(struct epx_comm *comm);
int epx_mpi_set_errhandler(struct epx_comm *comm, MPI_Errhandler errhandler);

/* mpi_errors.c */
int epx_mpi_set_up(void (*leave)(void), int *world_rank);
void epx_mpi_call_errhandler(const MPI_Comm *comm, int error);

/* mpi_topology.c */
int epx_mpi_degrees(const struct epx_comm *comm, int *indegree, int *outdegree);
int epx_mpi_neighbors(const struct epx_comm *comm, int indegree, int *sources, int outdegree,
                      int *destinations);

/* mpi_values.c */
int epx_mpi_read_info(MPI_Info info, void (*look)(void *arg, const char *key, const char *value),
                      void *arg);
int epx_mpi_create_info(MPI_Info *info);
int epx_mpi_set_info(MPI_Info info, const char *key, const char *value);
void epx_mpi_free_info(MPI_Info *info);
void epx_mpi_set_elements(MPI_Status *status, int64_t elements);
int64_t epx_mpi_get_elements(const MPI_Status *status);
const char *epx_mpi_datatype_name(int datatype, const char **wanted);
MPI_Comm epx_mpi_comm_of(int handle);
MPI_Info epx_mpi_info_of(int handle);
MPI_Errhandler epx_mpi_errhandler_of(int handle);
int epx_mpi_handle_of(MPI_Info info);

/* mpi_table.c */
extern const struct epx_mpi epx_mpi_table;

#endif

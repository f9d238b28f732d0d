/* SPDX-License-Identifier: BSD-3-Clause */
/* mpi_parts.h - the parts of the module _mpi.so; glue_mpi.h says what each does. */
#ifndef EPX_PYTHON_MPI_PARTS_H
#define EPX_PYTHON_MPI_PARTS_H

#include "glue_mpi.h"

/* mpi_core.c: functions of the glue, under the names that they have there */
void epx_python_call_back(const struct epx_python_core *given);
int epx_python_fail(int code, const char *format, ...);
int epx_python_fail_alone(int code);
int64_t epx_python_now_ns(void);

/* mpi_group.c: communicators of MPI for some ranks, and what for: each purpose has its own tags */
enum epx_python_purpose { EPX_PYTHON_FOR_EPX, EPX_PYTHON_FOR_AGREEMENT, EPX_PYTHON_PURPOSES };
int epx_python_group_comm(MPI_Group group, enum epx_python_purpose purpose, int64_t timeout_ms,
                          MPI_Comm *comm);
int epx_python_is_making_group(void);

/* mpi_comm.c */
int epx_python_mpi_create(const struct epx_python_origin *origin, const char *const hints[],
                          EPX_Comm *newcomm, struct epx_python_ranks **ranks);

/* mpi_ranks.c */
int epx_python_ranks_of(MPI_Comm comm, struct epx_python_ranks **ranks);
void epx_python_ranks_free(struct epx_python_ranks *ranks);
int epx_python_agreement_open(struct epx_python_ranks *ranks, int64_t timeout_ms);
void epx_python_agreement_leave(struct epx_python_ranks *ranks);
int epx_python_agree(const struct epx_python_ranks *ranks, int64_t *numbers, int64_t timeout_ms);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks_maker.h - what ranks.c needs of MPI, or of EPX. */
#ifndef EPX_TOOLS_RANKS_MAKER_H
#define EPX_TOOLS_RANKS_MAKER_H

#include <epx.h>
#include <stddef.h>

struct ranks_maker {
    /* 0, or -1, having said why. */
    int (*start)(const char *program, int *argc, char ***argv, int *rank, int *size);
    void (*finish)(void);
    void (*end_job)(void);
    void (*barrier)(void);
    void (*allgather)(const void *own, void *all, size_t bytes);
    void (*alltoall)(const void *to, void *from, size_t bytes);
    int (*create_comm)(const char *const hints[], EPX_Comm *comm);
};

extern const struct ranks_maker ranks_maker_mpi, ranks_maker_epx;

#endif

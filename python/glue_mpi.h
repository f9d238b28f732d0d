/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_mpi.h - what the glue asks of MPI. All that calls MPI is in python/mpi, a module of its own,
 * _mpi.so beside _glue.so: it is opened when somebody wants MPI, so that the package can be
 * imported and used where there is none.
 */
#ifndef EPX_PYTHON_GLUE_MPI_H
#define EPX_PYTHON_GLUE_MPI_H

#include <epx.h>
#include <stdarg.h>

/* What the module keeps of a communicator whose ranks MPI started. */
struct epx_python_ranks;

/* The ranks of a communicator to be: those of a communicator of MPI by its handle of Fortran, or,
 * where num_ranks is not 0, ranks of MPI_COMM_WORLD, which come within timeout_ms. */
struct epx_python_origin {
    int fortran;
    const int *ranks;
    int num_ranks;
    int64_t timeout_ms;
};

/* What the module calls in the glue, under the names that these have there; see glue.h. */
struct epx_python_core {
    int (*fail_list)(int code, const char *format, va_list values);
    int (*fail_alone)(int code);
    int64_t (*now_ns)(void);
};

/* Functions that return int return an error code of EPX, if nothing else is said. */
struct epx_python_mpi {
    /* Local: whether MPI is initialized and not finalized; or finalized. */
    int (*is_running)(void);
    int (*is_finalized)(void);
    /* Initializes MPI unless somebody has. Finalizes it. */
    int (*init)(int *initialized_here);
    int (*finalize)(void);
    /* The rest is called in between only. Local: lets the user's own messages move. */
    void (*progress)(void);
    /* Local: this rank in MPI_COMM_WORLD, and the ranks there; its handle of Fortran. */
    void (*world)(int rank_size[2]);
    int (*fortran_world)(void);
    /* Collective over MPI_COMM_WORLD: this rank among those of its node; the bytes of all. */
    int (*node_rank)(int *rank);
    int (*gather)(const void *mine, void *all, int bytes);

    /* Collective. hints are pairs, which end with NULL. */
    int (*create)(const struct epx_python_origin *origin, const char *const hints[],
                  EPX_Comm *newcomm, struct epx_python_ranks **ranks);
    /* Takes NULL. */
    void (*free_ranks)(struct epx_python_ranks *ranks);
    /* Collective over the ranks: makes what they agree by, once. */
    int (*open_agreement)(struct epx_python_ranks *ranks, int64_t timeout_ms);
    /* Local: what they agree by is left, since other ranks may be gone. */
    void (*leave_agreement)(struct epx_python_ranks *ranks);
    /* Collective: numbers[rank] becomes the number that each rank has behind the last of them.
     * After an error MPI may still write the numbers. */
    int (*agree)(const struct epx_python_ranks *ranks, int64_t *numbers, int64_t timeout_ms);
};

/* The entry of the module. */
const struct epx_python_mpi *epx_python_mpi_module(const struct epx_python_core *given);

#endif

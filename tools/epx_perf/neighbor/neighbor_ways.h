/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * neighbor_ways.h - ways to exchange rows with the faces of a periodic box of ranks: by EPX, and by
 * what MPI has.
 */
#ifndef EPX_PERF_NEIGHBOR_WAYS_H
#define EPX_PERF_NEIGHBOR_WAYS_H

#include <epx.h>
#include <mpi.h>

#include "epx_perf/space/perf_buffer.h"

enum { NEIGHBOR_MOST_DEGREE = 6 };

/* One row for each face, of the same length on all of them. */
struct neighbor_box {
    MPI_Comm topology;
    EPX_Comm comm;
    EPX_Graph graph;
    int degree, faces[NEIGHBOR_MOST_DEGREE];
    int row_bytes;
    EPX_Stream stream;
    struct perf_buffer sent, got; /* of the space; MPI gets rows in the latter */
    struct perf_buffer window;    /* EPX gets rows here: EPX_Alloc_mem */
    struct perf_buffer counts, displs, came, came_at; /* int64_t[degree] for EPX */
    int int_counts[NEIGHBOR_MOST_DEGREE], int_displs[NEIGHBOR_MOST_DEGREE];
    EPX_Request persistent;
    MPI_Request requests[2 * NEIGHBOR_MOST_DEGREE];
};

struct neighbor_way {
    const char *name;
    int by_epx; /* its rows arrive in the window */
    void (*prepare)(struct neighbor_box *box);
    void (*exchange)(struct neighbor_box *box);
    void (*end)(struct neighbor_box *box);
};

/* Ended by one without a name; the first is what the others are compared with. */
extern const struct neighbor_way neighbor_ways[];

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv_args.h - arguments and launchers of the kernels of an alltoallv. */
#ifndef EPX_KERNELS_ARGS_ALLTOALLV_ARGS_H
#define EPX_KERNELS_ARGS_ALLTOALLV_ARGS_H

#include "kernels/args/device_comm.h"
#include "kernels/args/ready_note.h"

/* Arguments of the kernels of an alltoallv. */
struct epx_alltoallv_rows {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    char *const *stage; /* [R] */
    int64_t stage_bytes;
    int64_t row_bytes;
    const char *rows;
    int64_t send_rows; /* that fit between `rows` and the end of its allocation */
    const int64_t *sendcounts, *sdispls;
    char *recv;
    int64_t *recvcounts, *rdispls;
    int64_t recv_capacity;
    int64_t packed_rows;  /* so many rows for another rank, or fewer, go in packets */
    int64_t packet_words; /* of all packets of a source */
};

/* The edges of a graph that begin, or end, at this rank, in the order of its list. */
struct epx_edge_list {
    int32_t num;
    uint8_t rank[EPX_MOST_EDGES];  /* at the other end */
    uint8_t place[EPX_MOST_EDGES]; /* of the edge in the other rank's list */
    uint8_t turn[EPX_MOST_EDGES];  /* how often the rank stands in the list before */
};

/* An exchange along the edges of a graph. */
struct epx_neighbor_rows {
    struct epx_alltoallv_rows rows; /* counts and displacements are those of edges */
    struct epx_edge_list sources, destinations;
    int32_t most_sources; /* of any rank: so many share its stage */
    int32_t most_turns;   /* edges between any two ranks, in one direction */
    int64_t edge_packets; /* words of the packets of an edge */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers return EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_alltoallv_rows(const struct epx_alltoallv_rows *args, EPX_Stream stream);
int epx_launch_neighbor_rows(const struct epx_neighbor_rows *args, EPX_Stream stream);
int epx_launch_neighbor_messages(const struct epx_neighbor_rows *args, EPX_Stream stream);
int epx_launch_alltoallv_messages(const struct epx_alltoallv_rows *args, EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif

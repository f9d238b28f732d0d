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

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers return EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_alltoallv_rows(const struct epx_alltoallv_rows *args, EPX_Stream stream);
int epx_launch_alltoallv_messages(const struct epx_alltoallv_rows *args, EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif

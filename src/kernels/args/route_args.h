/* SPDX-License-Identifier: BSD-3-Clause */
/* route_args.h - arguments and launchers of the kernels of a routing. */
#ifndef EPX_KERNELS_ARGS_ROUTE_ARGS_H
#define EPX_KERNELS_ARGS_ROUTE_ARGS_H

#include "kernels/args/bank_args.h"
#include "kernels/args/device_comm.h"
#include "kernels/args/ready_note.h"
#include "kernels/device_plan.h"

/* Arguments of the kernels of a routing. */
struct epx_route_tokens {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    struct epx_banks banks; /* their addresses alone */
    const void *ids;
    int32_t num_tokens;
    int32_t capacity; /* rows of this rank's receive buffer */
    int32_t *counts;  /* the user's [2 * L + 1], or NULL */
    int32_t halves;   /* of blocks that a routing in one launch may have; 0 = it has whole ones */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers return EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_route_tokens(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_route_halves(const struct epx_route_tokens *args, /* comm.blocks are halves */
                            EPX_Stream stream);
int epx_launch_route_small(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_count_tokens(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_list_node_rows(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_send_records(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_list_passed_rows(const struct epx_route_tokens *args, EPX_Stream stream);
int epx_launch_find_slots(const struct epx_route_tokens *args, EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif

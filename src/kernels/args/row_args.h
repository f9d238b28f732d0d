/* SPDX-License-Identifier: BSD-3-Clause */
/* row_args.h - arguments and launchers of the kernels of dispatch and combine backward. */
#ifndef EPX_KERNELS_ARGS_ROW_ARGS_H
#define EPX_KERNELS_ARGS_ROW_ARGS_H

#include "base/field.h"
#include "kernels/args/bank_args.h"
#include "kernels/args/device_comm.h"
#include "kernels/args/mover_args.h"
#include "kernels/args/ready_note.h"
#include "kernels/device_plan.h"

/* Arguments of dispatch, and of combine backward, which scales what arrives. */
struct epx_dispatch_rows {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    struct epx_rounds rounds; /* used if a receive buffer cannot be stored into */
    int32_t num_tokens;
    EPX_Datatype datatype;
    struct epx_fields fields;  /* the kernels for several fields read them */
    struct epx_list_note list; /* several fields */
    int64_t row_bytes;         /* of all fields together */
    const char *rows;          /* [T] of the only field, as recv */
    const float *weights; /* [T][K] or NULL; combine backward: [capacity] or NULL, of the slots */
    const char *forward;  /* combine backward: [capacity] rows that combine was given, or NULL */
    char *recv;           /* [capacity] */
    float *recv_weights;  /* or NULL */
    struct epx_banks banks;
    struct epx_movers movers;
    int64_t zeroed_to;      /* rows that nothing arrives in are zeroed up to here; 0 = left alone */
    int32_t weights_width;  /* recv_weights of a row */
    struct epx_round round; /* messages: which this kernel is of */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers return EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_dispatch_rounds(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_dispatch_packets(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_dispatch_small(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_move_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_scale_small(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_move_grads(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_pack_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_pass_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
int epx_launch_unpack_rows(const struct epx_dispatch_rows *args, EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif

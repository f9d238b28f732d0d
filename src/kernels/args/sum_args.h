/* SPDX-License-Identifier: BSD-3-Clause */
/* sum_args.h - arguments and launchers of the kernels that add rows: combine, dispatch backward. */
#ifndef EPX_KERNELS_ARGS_SUM_ARGS_H
#define EPX_KERNELS_ARGS_SUM_ARGS_H

#include "kernels/args/bank_args.h"
#include "kernels/args/device_comm.h"
#include "kernels/args/mover_args.h"
#include "kernels/args/ready_note.h"
#include "kernels/device_plan.h"

/* Arguments of combine, and of dispatch backward, which sends gradients of pair weights too. */
struct epx_combine_rows {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_device_plan plan;
    struct epx_rounds rounds;
    struct epx_banks banks;
    struct epx_movers movers;
    int32_t num_tokens;
    int32_t backward;
    EPX_Datatype datatype;
    int32_t wide;         /* sums travel as float32, for a datatype that is shorter */
    int64_t row_bytes;    /* of a sum that travels */
    const char *rows;     /* [capacity] */
    const float *weights; /* [capacity], rank-major backward [capacity][K], given [T][K]; or NULL */
    int32_t given;        /* weights are of this rank's tokens; other ranks are sent those of their
                             pairs */
    char *sums;           /* [T] */
    float *grad_weights;  /* [T][K] or NULL; dispatch backward */
    int32_t num_biases;   /* arrays of [T] rows that the sums start from */
    const char *biases[EPX_MAX_BIASES];
    struct epx_round round; /* messages: which this kernel is of */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers return EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_combine_rounds(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_combine_packets(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_combine_small(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_move_sums(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_pack_sums(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_pass_sums(const struct epx_combine_rows *args, EPX_Stream stream);
int epx_launch_unpack_sums(const struct epx_combine_rows *args, EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif

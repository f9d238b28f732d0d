/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_moe_experts.h - the experts as kernels, for epx_moe_space_cuda.c. */
#ifndef EPX_MOE_EXPERTS_H
#define EPX_MOE_EXPERTS_H

#include <epx.h>

/* All in device memory. A pair is a row and one of its experts: an expert-major row is one pair, a
 * rank-major row is top_k pairs, some of them with no expert. */
struct moe_experts {
    EPX_Route_view view;
    int hidden, ffn;
    int row_pairs;                /* 1, or top_k in rank-major */
    int32_t *row_experts;         /* [rows] of forward, for backward; NULL in rank-major */
    const float *parameters;      /* [L][2*H*F], as in struct moe_model */
    float *grad_parameters;       /* [L][2*H*F], the gradients of parameters */
    const float *x, *grad_out;    /* [rows][H] */
    float *out, *grad_x;          /* [rows][H] */
    const float *weights;         /* [pairs], or NULL = 1 */
    float *grad_weights;          /* [pairs], if there are weights */
    float *h, *silu, *grad_h, *y; /* [pairs][F], and [pairs][H]: out itself if it is not summed */
};

#ifdef __cplusplus
extern "C" {
#endif
void moe_experts_forward(const struct moe_experts *experts, EPX_Stream stream);
void moe_experts_backward(const struct moe_experts *experts, EPX_Stream stream);
/* difference = a - b */
void moe_subtract(const float *a, const float *b, float *difference, int64_t n, EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif

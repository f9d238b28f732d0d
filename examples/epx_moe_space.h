/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_moe_space.h - where rows lie and experts compute: in the host's memory, or on this rank's
 * GPU, asked for by EPX_MEMORY=cuda:device. The router stays on the host: what it says of a step
 * goes to the GPU before the step, and the results come back after it.
 */
#ifndef EPX_MOE_SPACE_H
#define EPX_MOE_SPACE_H

#include "epx_moe.h"

struct moe_space {
    void *(*alloc)(int64_t count, size_t size); /* zeroed */
    void (*free)(void *memory);
    /* Makes the stream, the batch, and what else the space keeps of a layer whose route and model
     * exist. */
    void (*create)(struct moe_layer *layer);
    void (*destroy)(struct moe_layer *layer);
    /* Copies rows, ids, weights and parameters of a step from the host to layer->batch; then the
     * first phase begins. */
    void (*put_step)(struct moe_layer *layer, const struct moe_batch *batch);
    /* Copies outputs, gradients and counts of a step to the host. */
    void (*get_step)(struct moe_layer *layer, struct moe_batch *batch);
    /* Charges the time since the phase before to this one. */
    void (*lap)(struct moe_layer *layer, enum moe_phase phase);
    /* grad_y = y - target */
    void (*loss_gradient)(struct moe_layer *layer);
    /* experts_forward makes out from recv; the backward makes grad_recv from grad_out, with the
     * gradients of the parameters and, rank-major, of the weights. Both read the counts where the
     * view has them. */
    void (*experts_forward)(struct moe_layer *layer);
    void (*experts_backward)(struct moe_layer *layer);
};

extern const struct moe_space moe_space_host;

/* Takes a GPU for this rank; ends the program if there is none, or no CUDA in this build. */
const struct moe_space *moe_space_cuda(void);

#endif

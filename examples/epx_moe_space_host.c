/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_moe_space_host.c - rows and experts in the host's memory: the buffers are the batch's own. */
#include "epx_moe_space.h"

#include <stdlib.h>
#include <string.h>

struct moe_host {
    double lap_start;
    float *expert_row; /* rank-major: the row of one expert and its gradient */
};

static void host_create(struct moe_layer *l)
{
    l->host = moe_alloc(1, sizeof(*l->host));
    l->host->expert_row = moe_alloc((int64_t)2 * l->opt.hidden, sizeof(float));
    l->expert_counts = l->view.expert_counts;
}

static void host_destroy(struct moe_layer *l)
{
    free(l->host->expert_row);
    free(l->host);
}

static void host_put_step(struct moe_layer *l, const struct moe_batch *b)
{
    l->batch = *b;
    l->host->lap_start = MPI_Wtime();
}

static void host_get_step(struct moe_layer *l, struct moe_batch *b)
{
    (void)b;
    l->num_rows = *l->view.num_rows;
}

static void host_lap(struct moe_layer *l, enum moe_phase phase)
{
    double now = MPI_Wtime();

    l->seconds[phase] += now - l->host->lap_start;
    l->host->lap_start = now;
}

static void host_loss_gradient(struct moe_layer *l)
{
    struct moe_batch *b = &l->batch;

    for (int64_t i = 0; i < (int64_t)b->num_tokens * l->opt.hidden; i++)
        b->grad_y[i] = b->y[i] - b->target[i];
}

static void expert_major_forward(struct moe_layer *l)
{
    const EPX_Route_view *v = &l->view;

    for (int e = 0; e < v->num_local_experts; e++) {
        int64_t first = v->expert_offsets[e] * l->opt.hidden;

        moe_expert_forward(l->model, e, l->recv + first, l->out + first, v->expert_counts[e]);
    }
}

static void expert_major_backward(struct moe_layer *l)
{
    const EPX_Route_view *v = &l->view;

    for (int e = 0; e < v->num_local_experts; e++) {
        int64_t first = v->expert_offsets[e] * l->opt.hidden;

        moe_expert_backward(l->model, e, l->recv + first, l->grad_out + first, l->grad_recv + first,
                            v->expert_counts[e]);
    }
}

static void add_scaled(float *sum, float scale, const float *row, int hidden)
{
    for (int i = 0; i < hidden; i++)
        sum[i] += scale * row[i];
}

static float dot(const float *a, const float *b, int hidden)
{
    float sum = 0;

    for (int i = 0; i < hidden; i++)
        sum += a[i] * b[i];
    return sum;
}

static void rank_major_forward(struct moe_layer *l)
{
    int hidden = l->opt.hidden, top_k = l->opt.top_k;

    for (int64_t row = 0; row < *l->view.num_rows; row++) {
        float *out = l->out + row * hidden;

        memset(out, 0, (size_t)hidden * sizeof(*out));
        for (int64_t pair = row * top_k; pair < (row + 1) * top_k; pair++) {
            int e = l->view.row_expert_ids[pair];

            if (e < 0)
                continue;
            moe_expert_forward(l->model, e, l->recv + row * hidden, l->host->expert_row, 1);
            add_scaled(out, l->recv_weights[pair], l->host->expert_row, hidden);
        }
    }
}

/* One expert of a row: answers the gradient of its weight and adds to that of the row. */
static float pair_backward(struct moe_layer *l, int e, float weight, int64_t row)
{
    int hidden = l->opt.hidden;
    const float *x = l->recv + row * hidden, *grad_out = l->grad_out + row * hidden;
    float *y = l->host->expert_row, *grad_y = y, *grad_x = y + hidden, grad_weight;

    moe_expert_forward(l->model, e, x, y, 1);
    grad_weight = dot(grad_out, y, hidden);
    for (int i = 0; i < hidden; i++)
        grad_y[i] = weight * grad_out[i];
    moe_expert_backward(l->model, e, x, grad_y, grad_x, 1);
    add_scaled(l->grad_recv + row * hidden, 1.0f, grad_x, hidden);
    return grad_weight;
}

static void rank_major_backward(struct moe_layer *l)
{
    int64_t hidden = l->opt.hidden, top_k = l->opt.top_k, num_rows = *l->view.num_rows;

    memset(l->grad_recv, 0, (size_t)(num_rows * hidden) * sizeof(float));
    for (int64_t row = 0; row < num_rows; row++)
        for (int64_t pair = row * top_k; pair < (row + 1) * top_k; pair++) {
            int e = l->view.row_expert_ids[pair];

            l->grad_recv_weights[pair] =
                e < 0 ? 0 : pair_backward(l, e, l->recv_weights[pair], row);
        }
}

static void host_experts_forward(struct moe_layer *l)
{
    if (l->opt.layout == EPX_RANK_MAJOR)
        rank_major_forward(l);
    else
        expert_major_forward(l);
}

static void host_experts_backward(struct moe_layer *l)
{
    if (l->opt.layout == EPX_RANK_MAJOR)
        rank_major_backward(l);
    else
        expert_major_backward(l);
}

const struct moe_space moe_space_host = {
    .alloc = moe_alloc,
    .free = free,
    .create = host_create,
    .destroy = host_destroy,
    .put_step = host_put_step,
    .get_step = host_get_step,
    .lap = host_lap,
    .loss_gradient = host_loss_gradient,
    .experts_forward = host_experts_forward,
    .experts_backward = host_experts_backward,
};

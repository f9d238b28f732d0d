/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_moe_layer.c - the layer on EPX: route, dispatch, experts, combine, and their backwards.
 * Expert-major rows are one a (token, choice): an expert works on a slab, and combine multiplies
 * by the routing weights. Rank-major rows are one a (token, rank): the rank sums its experts.
 */
#include "epx_moe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the library's message if a call failed. */
static void check(int code, EPX_Comm comm)
{
    char message[EPX_MAX_ERROR_STRING];
    int length;

    if (code == EPX_SUCCESS)
        return;
    if (comm != EPX_COMM_NULL)
        EPX_Comm_get_error_message(comm, message, &length);
    else
        EPX_Error_string(code, message, &length);
    fprintf(stderr, "epx_moe: %s\n", message);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Rows to receive, if they are limited: an even load of the local experts times the factor. */
static int64_t recv_capacity(const struct moe_options *opt, int num_ranks, int num_local_experts)
{
    double pairs = (double)num_ranks * opt->max_tokens * opt->top_k;

    if (opt->capacity_factor <= 0)
        return 0;
    return (int64_t)(opt->capacity_factor * pairs * num_local_experts / opt->num_experts) + 1;
}

/* Experts that a rank owns: see epx(7). */
static int local_experts(int num_experts, int rank, int num_ranks)
{
    int64_t first = (int64_t)rank * num_experts / num_ranks;

    return (int)(((int64_t)rank + 1) * num_experts / num_ranks - first);
}

static void create_route(struct moe_layer *l)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;

    attr.num_experts = l->opt.num_experts;
    attr.top_k = l->opt.top_k;
    attr.max_tokens = l->opt.max_tokens;
    attr.max_row_bytes = (int64_t)l->opt.hidden * (int64_t)sizeof(float);
    attr.layout = l->opt.layout;
    if (l->opt.capacity_factor > 0)
        attr.overflow = EPX_OVERFLOW_DROP;
    attr.recv_capacity = recv_capacity(
        &l->opt, l->num_ranks, local_experts(l->opt.num_experts, l->rank, l->num_ranks));
    check(EPX_Route_create(&attr, l->comm, &l->route), l->comm);
    check(EPX_Route_get_view(l->route, &view), l->comm);
    l->view = view;
}

/* Rows that other ranks send lie in memory that they can store into. */
static float *alloc_window(struct moe_layer *l, int64_t row_elements)
{
    float *base;
    int64_t bytes = l->view.capacity * row_elements * (int64_t)sizeof(float);

    check(EPX_Alloc_mem((MPI_Aint)bytes, l->comm, &base), l->comm);
    return base;
}

static void alloc_buffers(struct moe_layer *l)
{
    int64_t capacity = l->view.capacity, hidden = l->opt.hidden;
    int64_t row_weights = l->opt.layout == EPX_RANK_MAJOR ? l->opt.top_k : 1;

    l->recv = alloc_window(l, hidden);
    l->recv_weights = alloc_window(l, row_weights);
    l->grad_out = alloc_window(l, hidden);
    l->grad_out_weights = alloc_window(l, 1);
    l->out = moe_alloc(capacity * hidden, sizeof(float));
    l->grad_recv = moe_alloc(capacity * hidden, sizeof(float));
    l->grad_recv_weights = moe_alloc(capacity * row_weights, sizeof(float));
    l->expert_row = moe_alloc(2 * hidden, sizeof(float));
    l->expert_rows = moe_alloc(l->opt.num_experts, sizeof(int64_t));
}

void moe_layer_create(const struct moe_options *opt, struct moe_layer *l)
{
    memset(l, 0, sizeof(*l));
    l->opt = *opt;
    check(EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &l->comm), EPX_COMM_NULL);
    check(EPX_Comm_set_errhandler(l->comm, MPI_ERRORS_RETURN), l->comm);
    check(EPX_Comm_rank(l->comm, &l->rank), l->comm);
    check(EPX_Comm_size(l->comm, &l->num_ranks), l->comm);
    create_route(l);
    alloc_buffers(l);
    l->model = moe_model_create(opt, l->view.first_local_expert, l->view.num_local_experts);
}

void moe_layer_free(struct moe_layer *l)
{
    check(EPX_Free_mem(l->grad_out_weights, l->comm), l->comm);
    check(EPX_Free_mem(l->grad_out, l->comm), l->comm);
    check(EPX_Free_mem(l->recv_weights, l->comm), l->comm);
    check(EPX_Free_mem(l->recv, l->comm), l->comm);
    check(EPX_Route_free(&l->route), l->comm);
    check(EPX_Comm_free(&l->comm), EPX_COMM_NULL);
    moe_model_free(l->model);
    free(l->out);
    free(l->grad_recv);
    free(l->grad_recv_weights);
    free(l->expert_row);
    free(l->expert_rows);
}

/* Charges the time since *start to a phase and starts anew. */
static void lap(struct moe_layer *l, enum moe_phase phase, double *start)
{
    double now = MPI_Wtime();

    l->seconds[phase] += now - *start;
    *start = now;
}

static void choose_experts(struct moe_layer *l, struct moe_batch *b)
{
    int64_t hidden = l->opt.hidden, num_experts = l->opt.num_experts, top_k = l->opt.top_k;

    for (int t = 0; t < b->num_tokens; t++)
        moe_router_forward(l->model, b->x + t * hidden, b->probabilities + t * num_experts,
                           b->ids + t * top_k, b->weights + t * top_k);
}

static void route(struct moe_layer *l, struct moe_batch *b)
{
    EPX_Request request;

    check(EPX_Route_tokens(b->ids, b->num_tokens, l->route, EPX_STREAM_NULL, &request), l->comm);
    check(EPX_Wait(&request, MPI_STATUS_IGNORE), l->comm);
    l->rows += *l->view.num_rows;
    for (int e = 0; e < l->view.num_local_experts; e++)
        l->expert_rows[l->view.first_local_expert + e] += l->view.expert_counts[e];
}

static void dispatch(struct moe_layer *l, struct moe_batch *b)
{
    EPX_Request request;

    check(EPX_Dispatch(b->x, b->weights, l->recv, l->recv_weights, l->opt.hidden, EPX_FLOAT32,
                       l->route, EPX_STREAM_NULL, &request),
          l->comm);
    check(EPX_Wait(&request, MPI_STATUS_IGNORE), l->comm);
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

        moe_expert_backward(l->model, e, l->recv + first, l->grad_out + first,
                            l->grad_recv + first, v->expert_counts[e]);
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
            moe_expert_forward(l->model, e, l->recv + row * hidden, l->expert_row, 1);
            add_scaled(out, l->recv_weights[pair], l->expert_row, hidden);
        }
    }
}

/* One expert of a row: answers the gradient of its weight and adds to that of the row. */
static float pair_backward(struct moe_layer *l, int e, float weight, int64_t row)
{
    int hidden = l->opt.hidden;
    const float *x = l->recv + row * hidden, *grad_out = l->grad_out + row * hidden;
    float *y = l->expert_row, *grad_y = y, *grad_x = y + hidden, grad_weight;

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

/* The weights of combine: those that came with the rows, or none if the experts' sum has them. */
static const float *combine_weights(const struct moe_layer *l)
{
    return l->opt.layout == EPX_RANK_MAJOR ? NULL : l->recv_weights;
}

static void combine(struct moe_layer *l, struct moe_batch *b)
{
    EPX_Request request;

    check(EPX_Combine(l->out, combine_weights(l), b->y, l->opt.hidden, EPX_FLOAT32, l->route,
                      EPX_STREAM_NULL, &request),
          l->comm);
    check(EPX_Wait(&request, MPI_STATUS_IGNORE), l->comm);
}

static void combine_backward(struct moe_layer *l, struct moe_batch *b)
{
    EPX_Request request;

    check(EPX_Combine_backward(b->grad_y, l->out, combine_weights(l), l->grad_out,
                               combine_weights(l) ? l->grad_out_weights : NULL, l->opt.hidden,
                               EPX_FLOAT32, l->route, EPX_STREAM_NULL, &request),
          l->comm);
    check(EPX_Wait(&request, MPI_STATUS_IGNORE), l->comm);
}

static void dispatch_backward(struct moe_layer *l, struct moe_batch *b)
{
    const float *grad_recv_weights =
        l->opt.layout == EPX_RANK_MAJOR ? l->grad_recv_weights : l->grad_out_weights;
    EPX_Request request;

    check(EPX_Dispatch_backward(l->grad_recv, grad_recv_weights, b->grad_x, b->grad_weights,
                                l->opt.hidden, EPX_FLOAT32, l->route, EPX_STREAM_NULL, &request),
          l->comm);
    check(EPX_Wait(&request, MPI_STATUS_IGNORE), l->comm);
}

/* Every rank has the router: its gradient is the sum over the tokens of all ranks. */
static void router_backward(struct moe_layer *l, struct moe_batch *b)
{
    int64_t hidden = l->opt.hidden, num_experts = l->opt.num_experts, top_k = l->opt.top_k;

    for (int t = 0; t < b->num_tokens; t++)
        moe_router_backward(l->model, b->x + t * hidden, b->probabilities + t * num_experts,
                            b->ids + t * top_k, b->grad_weights + t * top_k,
                            b->grad_x + t * hidden);
    MPI_Allreduce(MPI_IN_PLACE, l->model->grad_router, (int)(hidden * num_experts), MPI_FLOAT,
                  MPI_SUM, MPI_COMM_WORLD);
}

void moe_layer_forward(struct moe_layer *l, struct moe_batch *b)
{
    double start = MPI_Wtime();

    choose_experts(l, b);
    lap(l, MOE_ROUTER, &start);
    route(l, b);
    lap(l, MOE_ROUTE, &start);
    dispatch(l, b);
    lap(l, MOE_DISPATCH, &start);
    if (l->opt.layout == EPX_RANK_MAJOR)
        rank_major_forward(l);
    else
        expert_major_forward(l);
    lap(l, MOE_EXPERTS, &start);
    combine(l, b);
    lap(l, MOE_COMBINE, &start);
}

void moe_layer_backward(struct moe_layer *l, struct moe_batch *b)
{
    double start = MPI_Wtime();

    combine_backward(l, b);
    lap(l, MOE_COMBINE_BACKWARD, &start);
    if (l->opt.layout == EPX_RANK_MAJOR)
        rank_major_backward(l);
    else
        expert_major_backward(l);
    lap(l, MOE_EXPERTS_BACKWARD, &start);
    dispatch_backward(l, b);
    lap(l, MOE_DISPATCH_BACKWARD, &start);
    router_backward(l, b);
    lap(l, MOE_ROUTER_BACKWARD, &start);
}

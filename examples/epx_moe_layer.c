/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_moe_layer.c - the layer on EPX: route, dispatch, experts, combine, and their backwards.
 * Expert-major rows are one a (token, choice): an expert works on a slab, and combine multiplies
 * by the routing weights. Rank-major rows are one a (token, rank): the rank sums its experts.
 * On a GPU all of a step's work is queued on one stream, and the host waits for the last of it.
 */
#include "epx_moe_space.h"

#include <stdlib.h>
#include <string.h>

#include "watch/mpi_watch.h"

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
    moe_fail("%s", message);
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
    attr.recv_capacity = recv_capacity(&l->opt, l->num_ranks,
                                       local_experts(l->opt.num_experts, l->rank, l->num_ranks));
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
    l->out = l->space->alloc(capacity * hidden, sizeof(float));
    l->grad_recv = l->space->alloc(capacity * hidden, sizeof(float));
    l->grad_recv_weights = l->space->alloc(capacity * row_weights, sizeof(float));
    l->expert_rows = moe_alloc(l->opt.num_experts, sizeof(int64_t));
}

/* The hint says where rows lie; a GPU has to be taken before the communicator is made. */
static const struct moe_space *choose_space(void)
{
    const char *memory = getenv("EPX_MEMORY");

    return memory && strcmp(memory, "cuda:device") == 0 ? moe_space_cuda() : &moe_space_host;
}

void moe_layer_create(const struct moe_options *opt, struct moe_layer *l)
{
    memset(l, 0, sizeof(*l));
    l->opt = *opt;
    l->space = choose_space();
    check(EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &l->comm), EPX_COMM_NULL);
    mpi_watch_open("epx_moe", l->comm);
    check(EPX_Comm_set_errhandler(l->comm, MPI_ERRORS_RETURN), l->comm);
    check(EPX_Comm_rank(l->comm, &l->rank), l->comm);
    check(EPX_Comm_size(l->comm, &l->num_ranks), l->comm);
    create_route(l);
    alloc_buffers(l);
    l->model = moe_model_create(opt, l->view.first_local_expert, l->view.num_local_experts);
    l->space->create(l);
}

void moe_layer_free(struct moe_layer *l)
{
    l->space->destroy(l);
    check(EPX_Free_mem(l->grad_out_weights, l->comm), l->comm);
    check(EPX_Free_mem(l->grad_out, l->comm), l->comm);
    check(EPX_Free_mem(l->recv_weights, l->comm), l->comm);
    check(EPX_Free_mem(l->recv, l->comm), l->comm);
    check(EPX_Route_free(&l->route), l->comm);
    check(EPX_Comm_free(&l->comm), EPX_COMM_NULL);
    moe_model_free(l->model);
    l->space->free(l->out);
    l->space->free(l->grad_recv);
    l->space->free(l->grad_recv_weights);
    free(l->expert_rows);
}

static void choose_experts(struct moe_layer *l, struct moe_batch *b)
{
    int64_t hidden = l->opt.hidden, num_experts = l->opt.num_experts, top_k = l->opt.top_k;

    for (int t = 0; t < b->num_tokens; t++)
        moe_router_forward(l->model, b->x + t * hidden, b->probabilities + t * num_experts,
                           b->ids + t * top_k, b->weights + t * top_k);
}

/* The stream's later work comes after the operation. On the host there is no stream: this waits. */
static void wait_in_order(struct moe_layer *l, EPX_Request *request)
{
    check(EPX_Wait_enqueue(request, l->stream), l->comm);
}

static void route(struct moe_layer *l)
{
    EPX_Request request;

    check(EPX_Route_tokens(l->batch.ids, l->batch.num_tokens, l->route, l->stream, &request),
          l->comm);
    wait_in_order(l, &request);
}

static void dispatch(struct moe_layer *l)
{
    EPX_Request request;

    check(EPX_Dispatch(l->batch.x, l->batch.weights, l->recv, l->recv_weights, l->opt.hidden,
                       EPX_FLOAT32, l->route, l->stream, &request),
          l->comm);
    wait_in_order(l, &request);
}

/* The weights of combine: those that came with the rows, or none if the experts' sum has them. */
static const float *combine_weights(const struct moe_layer *l)
{
    return l->opt.layout == EPX_RANK_MAJOR ? NULL : l->recv_weights;
}

static void combine(struct moe_layer *l)
{
    EPX_Request request;

    check(EPX_Combine(l->out, combine_weights(l), l->batch.y, l->opt.hidden, EPX_FLOAT32, l->route,
                      l->stream, &request),
          l->comm);
    wait_in_order(l, &request);
}

static void combine_backward(struct moe_layer *l)
{
    EPX_Request request;

    check(EPX_Combine_backward(l->batch.grad_y, l->out, combine_weights(l), l->grad_out,
                               combine_weights(l) ? l->grad_out_weights : NULL, l->opt.hidden,
                               EPX_FLOAT32, l->route, l->stream, &request),
          l->comm);
    wait_in_order(l, &request);
}

/* The last operation of a step: the host waits for it, and asks how those before it ended. */
static void dispatch_backward(struct moe_layer *l)
{
    const float *grad_recv_weights =
        l->opt.layout == EPX_RANK_MAJOR ? l->grad_recv_weights : l->grad_out_weights;
    EPX_Request request;
    int error;

    check(EPX_Dispatch_backward(l->grad_recv, grad_recv_weights, l->batch.grad_x,
                                l->batch.grad_weights, l->opt.hidden, EPX_FLOAT32, l->route,
                                l->stream, &request),
          l->comm);
    check(EPX_Wait(&request, MPI_STATUS_IGNORE), l->comm);
    check(EPX_Comm_get_async_error(l->comm, &error), l->comm);
    check(error, l->comm);
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

static void count_rows(struct moe_layer *l)
{
    l->rows += l->num_rows;
    for (int e = 0; e < l->view.num_local_experts; e++)
        l->expert_rows[l->view.first_local_expert + e] += l->expert_counts[e];
}

void moe_layer_forward(struct moe_layer *l, struct moe_batch *b)
{
    double start = MPI_Wtime();

    choose_experts(l, b);
    l->seconds[MOE_ROUTER] += MPI_Wtime() - start;
    l->space->put_step(l, b);
    route(l);
    l->space->lap(l, MOE_ROUTE);
    dispatch(l);
    l->space->lap(l, MOE_DISPATCH);
    l->space->experts_forward(l);
    l->space->lap(l, MOE_EXPERTS);
    combine(l);
    l->space->lap(l, MOE_COMBINE);
}

void moe_layer_backward(struct moe_layer *l, struct moe_batch *b)
{
    double start;

    l->space->loss_gradient(l);
    combine_backward(l);
    l->space->lap(l, MOE_COMBINE_BACKWARD);
    l->space->experts_backward(l);
    l->space->lap(l, MOE_EXPERTS_BACKWARD);
    dispatch_backward(l);
    l->space->lap(l, MOE_DISPATCH_BACKWARD);
    l->space->get_step(l, b);
    count_rows(l);
    start = MPI_Wtime();
    router_backward(l, b);
    l->seconds[MOE_ROUTER_BACKWARD] += MPI_Wtime() - start;
}

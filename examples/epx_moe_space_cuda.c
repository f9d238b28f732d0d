/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_moe_space_cuda.c - rows and experts on this rank's GPU. */
#include "epx_moe_space.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "epx_moe_experts.h"

struct moe_gpu {
    struct moe_experts experts;
    float *parameters;
    int32_t *expert_counts;           /* on the host */
    cudaEvent_t ends[MOE_NUM_PHASES]; /* of the phases of a step */
};

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        moe_fail("%s: %s", what, cudaGetErrorString(error));
}

static void *gpu_alloc(int64_t count, size_t size)
{
    size_t bytes = (count ? (size_t)count : 1) * size;
    void *memory = NULL;

    must(cudaMalloc(&memory, bytes), "cudaMalloc");
    must(cudaMemset(memory, 0, bytes), "cudaMemset");
    return memory;
}

static void gpu_free(void *memory)
{
    must(cudaFree(memory), "cudaFree");
}

static void alloc_batch(struct moe_layer *l)
{
    int64_t tokens = l->opt.max_tokens, hidden = l->opt.hidden, top_k = l->opt.top_k;
    struct moe_batch *b = &l->batch;

    b->x = gpu_alloc(tokens * hidden, sizeof(float));
    b->target = gpu_alloc(tokens * hidden, sizeof(float));
    b->y = gpu_alloc(tokens * hidden, sizeof(float));
    b->grad_y = gpu_alloc(tokens * hidden, sizeof(float));
    b->grad_x = gpu_alloc(tokens * hidden, sizeof(float));
    b->ids = gpu_alloc(tokens * top_k, sizeof(int64_t));
    b->weights = gpu_alloc(tokens * top_k, sizeof(float));
    b->grad_weights = gpu_alloc(tokens * top_k, sizeof(float));
}

static void free_batch(struct moe_batch *b)
{
    gpu_free(b->x);
    gpu_free(b->target);
    gpu_free(b->y);
    gpu_free(b->grad_y);
    gpu_free(b->grad_x);
    gpu_free(b->ids);
    gpu_free(b->weights);
    gpu_free(b->grad_weights);
}

static int64_t num_parameters(const struct moe_layer *l)
{
    return l->view.num_local_experts * moe_model_expert_size(l->model);
}

static void create_experts(struct moe_layer *l)
{
    struct moe_experts *m = &l->gpu->experts;
    int rank_major = l->opt.layout == EPX_RANK_MAJOR;
    int64_t pairs;

    m->view = l->view;
    m->hidden = l->opt.hidden;
    m->ffn = l->opt.ffn;
    m->row_pairs = rank_major ? l->opt.top_k : 1;
    pairs = l->view.capacity * m->row_pairs;
    m->row_experts = rank_major ? NULL : gpu_alloc(pairs, sizeof(int32_t));
    m->parameters = l->gpu->parameters = gpu_alloc(num_parameters(l), sizeof(float));
    m->grad_parameters = gpu_alloc(num_parameters(l), sizeof(float));
    m->x = l->recv;
    m->weights = rank_major ? l->recv_weights : NULL;
    m->out = l->out;
    m->grad_out = l->grad_out;
    m->grad_x = l->grad_recv;
    m->grad_weights = l->grad_recv_weights;
    m->h = gpu_alloc(pairs * m->ffn, sizeof(float));
    m->silu = gpu_alloc(pairs * m->ffn, sizeof(float));
    m->grad_h = gpu_alloc(pairs * m->ffn, sizeof(float));
    m->y = rank_major ? gpu_alloc(pairs * m->hidden, sizeof(float)) : m->out;
}

static void free_experts(struct moe_gpu *gpu)
{
    struct moe_experts *m = &gpu->experts;

    gpu_free(gpu->parameters);
    gpu_free(m->grad_parameters);
    gpu_free(m->row_experts);
    gpu_free(m->h);
    gpu_free(m->silu);
    gpu_free(m->grad_h);
    if (m->y != m->out)
        gpu_free(m->y);
}

static void gpu_create(struct moe_layer *l)
{
    l->gpu = moe_alloc(1, sizeof(*l->gpu));
    l->gpu->expert_counts = moe_alloc(l->view.num_local_experts, sizeof(int32_t));
    l->expert_counts = l->gpu->expert_counts;
    must(cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking), "cudaStreamCreate");
    for (int phase = 0; phase < MOE_NUM_PHASES; phase++)
        must(cudaEventCreate(&l->gpu->ends[phase]), "cudaEventCreate");
    alloc_batch(l);
    create_experts(l);
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); /* all is zero, for any stream */
}

static void gpu_destroy(struct moe_layer *l)
{
    free_experts(l->gpu);
    free_batch(&l->batch);
    for (int phase = 0; phase < MOE_NUM_PHASES; phase++)
        must(cudaEventDestroy(l->gpu->ends[phase]), "cudaEventDestroy");
    must(cudaStreamDestroy(l->stream), "cudaStreamDestroy");
    free(l->gpu->expert_counts);
    free(l->gpu);
}

static void copy(const struct moe_layer *l, void *to, const void *from, int64_t count, size_t size)
{
    if (count)
        must(cudaMemcpyAsync(to, from, (size_t)count * size, cudaMemcpyDefault, l->stream),
             "cudaMemcpyAsync");
}

static void gpu_lap(struct moe_layer *l, enum moe_phase phase)
{
    must(cudaEventRecord(l->gpu->ends[phase], l->stream), "cudaEventRecord");
}

static void gpu_put_step(struct moe_layer *l, const struct moe_batch *b)
{
    int64_t elements = (int64_t)b->num_tokens * l->opt.hidden;
    int64_t pairs = (int64_t)b->num_tokens * l->opt.top_k;

    l->batch.num_tokens = b->num_tokens;
    copy(l, l->batch.x, b->x, elements, sizeof(float));
    copy(l, l->batch.target, b->target, elements, sizeof(float));
    copy(l, l->batch.ids, b->ids, pairs, sizeof(int64_t));
    copy(l, l->batch.weights, b->weights, pairs, sizeof(float));
    copy(l, l->gpu->parameters, l->model->experts, num_parameters(l), sizeof(float));
    gpu_lap(l, MOE_ROUTER);
}

static void add_times(struct moe_layer *l)
{
    for (int phase = MOE_ROUTE; phase <= MOE_DISPATCH_BACKWARD; phase++) {
        float ms = 0;

        must(cudaEventElapsedTime(&ms, l->gpu->ends[phase - 1], l->gpu->ends[phase]),
             "cudaEventElapsedTime");
        l->seconds[phase] += 1e-3 * ms;
    }
}

static void gpu_get_step(struct moe_layer *l, struct moe_batch *b)
{
    int64_t elements = (int64_t)b->num_tokens * l->opt.hidden;

    copy(l, b->y, l->batch.y, elements, sizeof(float));
    copy(l, b->grad_x, l->batch.grad_x, elements, sizeof(float));
    copy(l, b->grad_weights, l->batch.grad_weights, (int64_t)b->num_tokens * l->opt.top_k,
         sizeof(float));
    copy(l, l->model->grad_experts, l->gpu->experts.grad_parameters, num_parameters(l),
         sizeof(float));
    copy(l, l->gpu->expert_counts, l->view.expert_counts, l->view.num_local_experts,
         sizeof(int32_t));
    copy(l, &l->num_rows, l->view.num_rows, 1, sizeof(int64_t));
    must(cudaStreamSynchronize(l->stream), "cudaStreamSynchronize");
    add_times(l);
}

static void gpu_loss_gradient(struct moe_layer *l)
{
    moe_subtract(l->batch.y, l->batch.target, l->batch.grad_y,
                 (int64_t)l->batch.num_tokens * l->opt.hidden, l->stream);
    must(cudaGetLastError(), "moe_subtract");
}

static void gpu_experts_forward(struct moe_layer *l)
{
    moe_experts_forward(&l->gpu->experts, l->stream);
    must(cudaGetLastError(), "moe_experts_forward");
}

static void gpu_experts_backward(struct moe_layer *l)
{
    moe_experts_backward(&l->gpu->experts, l->stream);
    must(cudaGetLastError(), "moe_experts_backward");
}

static const struct moe_space space = {
    .alloc = gpu_alloc,
    .free = gpu_free,
    .create = gpu_create,
    .destroy = gpu_destroy,
    .put_step = gpu_put_step,
    .get_step = gpu_get_step,
    .lap = gpu_lap,
    .loss_gradient = gpu_loss_gradient,
    .experts_forward = gpu_experts_forward,
    .experts_backward = gpu_experts_backward,
};

static int rank_on_node(void)
{
    MPI_Comm node;
    int rank;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank);
    MPI_Comm_free(&node);
    return rank;
}

const struct moe_space *moe_space_cuda(void)
{
    int devices = 0;

    must(cudaGetDeviceCount(&devices), "EPX_MEMORY is cuda:device, but there is no GPU here");
    if (devices < 1)
        moe_fail("EPX_MEMORY is cuda:device, but there is no GPU here");
    must(cudaSetDevice(rank_on_node() % devices), "cudaSetDevice");
    must(cudaFree(NULL), "making the GPU's context");
    return &space;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_moe_experts.cu - y = silu(x A) B and its backward for all experts of this rank at once. One
 * thread computes one element, as a sum in the order of the host's loops. How many rows there are
 * and whose they are stays in device memory: grids have one size, and the threads share what there
 * is to do. An expert without rows gets zero gradients.
 */
#include "epx_moe_experts.h"

enum { THREADS = 256, BLOCKS = 1024 };

static __device__ int64_t first_element(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ int64_t num_threads(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

static __device__ int64_t num_pairs(const struct moe_experts &m)
{
    return *m.view.num_rows * m.row_pairs;
}

/* The local expert of a pair, or -1. */
static __device__ int pair_expert(const struct moe_experts &m, int64_t pair)
{
    return m.row_experts ? m.row_experts[pair] : m.view.row_expert_ids[pair];
}

static __device__ int64_t matrix_size(const struct moe_experts &m)
{
    return (int64_t)m.hidden * m.ffn;
}

static __device__ const float *matrix_a(const struct moe_experts &m, int expert)
{
    return m.parameters + 2 * expert * matrix_size(m);
}

static __device__ const float *matrix_b(const struct moe_experts &m, int expert)
{
    return matrix_a(m, expert) + matrix_size(m);
}

static __device__ float sigmoid(float h)
{
    return 1.0f / (1.0f + expf(-h));
}

/* Expert-major: in whose slab each row is, -1 for padding. */
static __global__ void find_experts(struct moe_experts m)
{
    const int64_t *offsets = m.view.expert_offsets;

    for (int64_t row = first_element(); row < *m.view.num_rows; row += num_threads()) {
        int expert = 0;

        while (row >= offsets[expert + 1])
            expert++;
        m.row_experts[row] = row - offsets[expert] < m.view.expert_counts[expert] ? expert : -1;
    }
}

/* h = x A, and silu(h) */
static __global__ void compute_hidden(struct moe_experts m)
{
    for (int64_t i = first_element(); i < num_pairs(m) * m.ffn; i += num_threads()) {
        int64_t pair = i / m.ffn, column = i % m.ffn;
        int expert = pair_expert(m, pair);
        const float *x = m.x + pair / m.row_pairs * m.hidden, *a = matrix_a(m, expert);
        float h = 0;

        if (expert < 0)
            continue;
        for (int64_t j = 0; j < m.hidden; j++)
            h += x[j] * a[j * m.ffn + column];
        m.h[i] = h;
        m.silu[i] = h * sigmoid(h);
    }
}

/* y = silu(h) B */
static __global__ void compute_outputs(struct moe_experts m)
{
    for (int64_t i = first_element(); i < num_pairs(m) * m.hidden; i += num_threads()) {
        int64_t pair = i / m.hidden, column = i % m.hidden;
        int expert = pair_expert(m, pair);
        const float *silu = m.silu + pair * m.ffn, *b = matrix_b(m, expert);
        float y = 0;

        if (expert < 0)
            continue;
        for (int64_t f = 0; f < m.ffn; f++)
            y += silu[f] * b[f * m.hidden + column];
        m.y[i] = y;
    }
}

/* Rank-major: out is the weighted sum of the row's y. */
static __global__ void sum_outputs(struct moe_experts m)
{
    for (int64_t i = first_element(); i < *m.view.num_rows * m.hidden; i += num_threads()) {
        int64_t first = i / m.hidden * m.row_pairs, column = i % m.hidden;
        float out = 0;

        for (int64_t pair = first; pair < first + m.row_pairs; pair++)
            if (pair_expert(m, pair) >= 0)
                out += m.weights[pair] * m.y[pair * m.hidden + column];
        m.out[i] = out;
    }
}

/* Rank-major: the gradient of a pair's weight is grad_out y'. */
static __global__ void compute_grad_weights(struct moe_experts m)
{
    for (int64_t pair = first_element(); pair < num_pairs(m); pair += num_threads()) {
        const float *grad_out = m.grad_out + pair / m.row_pairs * m.hidden;
        float sum = 0;

        if (pair_expert(m, pair) >= 0)
            for (int64_t j = 0; j < m.hidden; j++)
                sum += grad_out[j] * m.y[pair * m.hidden + j];
        m.grad_weights[pair] = sum;
    }
}

/* The gradient of an element of y */
static __device__ float grad_of_y(const struct moe_experts &m, int64_t pair, int64_t column)
{
    float weight = m.weights ? m.weights[pair] : 1.0f;

    return weight * m.grad_out[pair / m.row_pairs * m.hidden + column];
}

/* grad_h = grad_y B', times the slope of silu at h */
static __global__ void compute_grad_hidden(struct moe_experts m)
{
    for (int64_t i = first_element(); i < num_pairs(m) * m.ffn; i += num_threads()) {
        int64_t pair = i / m.ffn, row = i % m.ffn;
        int expert = pair_expert(m, pair);
        const float *b = matrix_b(m, expert) + row * m.hidden;
        float s, sum = 0;

        if (expert < 0)
            continue;
        for (int64_t j = 0; j < m.hidden; j++)
            sum += b[j] * grad_of_y(m, pair, j);
        s = sigmoid(m.h[i]);
        m.grad_h[i] = sum * (s * (1.0f + m.h[i] * (1.0f - s)));
    }
}

static __device__ float grad_of_pair(const struct moe_experts &m, int64_t pair, int64_t column)
{
    const float *a = matrix_a(m, pair_expert(m, pair)) + column * m.ffn;
    const float *grad_h = m.grad_h + pair * m.ffn;
    float sum = 0;

    for (int64_t f = 0; f < m.ffn; f++)
        sum += a[f] * grad_h[f];
    return sum;
}

/* grad_x = the sum of grad_h A' over the row's pairs */
static __global__ void compute_grad_rows(struct moe_experts m)
{
    for (int64_t i = first_element(); i < *m.view.num_rows * m.hidden; i += num_threads()) {
        int64_t first = i / m.hidden * m.row_pairs, column = i % m.hidden;
        float sum = 0;

        for (int64_t pair = first; pair < first + m.row_pairs; pair++)
            if (pair_expert(m, pair) >= 0)
                sum += grad_of_pair(m, pair, column);
        m.grad_x[i] = sum;
    }
}

/* The pairs of an expert are in its slab, or anywhere in rank-major. */
static __device__ int64_t first_pair(const struct moe_experts &m, int expert)
{
    return m.view.expert_offsets ? m.view.expert_offsets[expert] : 0;
}

static __device__ int64_t last_pair(const struct moe_experts &m, int expert)
{
    return m.view.expert_offsets ? m.view.expert_offsets[expert + 1] : num_pairs(m);
}

/* grad_A = x' grad_h */
static __device__ float grad_of_a(const struct moe_experts &m, int expert, int64_t i)
{
    int64_t row = i / m.ffn, column = i % m.ffn;
    float sum = 0;

    for (int64_t pair = first_pair(m, expert); pair < last_pair(m, expert); pair++)
        if (pair_expert(m, pair) == expert)
            sum += m.x[pair / m.row_pairs * m.hidden + row] * m.grad_h[pair * m.ffn + column];
    return sum;
}

/* grad_B = silu(h)' grad_y */
static __device__ float grad_of_b(const struct moe_experts &m, int expert, int64_t i)
{
    int64_t row = i / m.hidden, column = i % m.hidden;
    float sum = 0;

    for (int64_t pair = first_pair(m, expert); pair < last_pair(m, expert); pair++)
        if (pair_expert(m, pair) == expert)
            sum += m.silu[pair * m.ffn + row] * grad_of_y(m, pair, column);
    return sum;
}

static __global__ void compute_grad_parameters(struct moe_experts m)
{
    int64_t size = matrix_size(m), n = 2 * size * m.view.num_local_experts;

    for (int64_t i = first_element(); i < n; i += num_threads()) {
        int expert = (int)(i / (2 * size));
        int64_t element = i % (2 * size);

        m.grad_parameters[i] =
            element < size ? grad_of_a(m, expert, element) : grad_of_b(m, expert, element - size);
    }
}

static __global__ void subtract(const float *a, const float *b, float *difference, int64_t n)
{
    for (int64_t i = first_element(); i < n; i += num_threads())
        difference[i] = a[i] - b[i];
}

void moe_experts_forward(const struct moe_experts *m, EPX_Stream stream)
{
    if (m->row_experts)
        find_experts<<<BLOCKS, THREADS, 0, stream>>>(*m);
    compute_hidden<<<BLOCKS, THREADS, 0, stream>>>(*m);
    compute_outputs<<<BLOCKS, THREADS, 0, stream>>>(*m);
    if (m->weights)
        sum_outputs<<<BLOCKS, THREADS, 0, stream>>>(*m);
}

void moe_experts_backward(const struct moe_experts *m, EPX_Stream stream)
{
    if (m->weights)
        compute_grad_weights<<<BLOCKS, THREADS, 0, stream>>>(*m);
    compute_grad_hidden<<<BLOCKS, THREADS, 0, stream>>>(*m);
    compute_grad_rows<<<BLOCKS, THREADS, 0, stream>>>(*m);
    compute_grad_parameters<<<BLOCKS, THREADS, 0, stream>>>(*m);
}

void moe_subtract(const float *a, const float *b, float *difference, int64_t n, EPX_Stream stream)
{
    subtract<<<BLOCKS, THREADS, 0, stream>>>(a, b, difference, n);
}

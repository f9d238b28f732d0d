/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_moe_model.c - the arithmetic of the layer on one process: router and experts, in float. */
#include "epx_moe.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void moe_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("epx_moe: ", stderr);
    vfprintf(stderr, format, args);
    fputs("\n", stderr);
    va_end(args);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void *moe_alloc(int64_t count, size_t size)
{
    void *memory = calloc(count ? (size_t)count : 1, size);

    if (!memory)
        moe_fail("no memory for %lld elements of %zu bytes", (long long)count, size);
    return memory;
}

/* A number in [-1, 1) that depends on nothing else, so a rank can make the weights of any expert.
 * The mixing is SplitMix64: Steele, Lea and Flood, OOPSLA 2014, doi 10.1145/2660193.2660195. */
static double uniform(uint64_t seed, uint64_t index)
{
    uint64_t z = seed * UINT64_C(0xda942042e4dd58b5) + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return (double)(z >> 11) / (double)(UINT64_C(1) << 52) - 1.0;
}

/* Fills a matrix of rows x columns so that unit elements in give elements of this deviation. */
static void init_matrix(float *matrix, int rows, int columns, double deviation, uint64_t seed)
{
    for (int64_t i = 0; i < (int64_t)rows * columns; i++)
        matrix[i] = (float)(deviation * sqrt(3.0 / rows) * uniform(seed, (uint64_t)i));
}

int64_t moe_model_expert_size(const struct moe_model *model)
{
    return (int64_t)2 * model->opt.hidden * model->opt.ffn;
}

static void init_weights(struct moe_model *m)
{
    int64_t size = moe_model_expert_size(m);
    uint64_t seed = m->opt.seed << 32;

    init_matrix(m->router, m->opt.hidden, m->opt.num_experts, 3.0, seed);
    for (int l = 0; l < m->num_local_experts; l++) {
        uint64_t expert = (uint64_t)(m->first_expert + l);

        init_matrix(m->experts + l * size, m->opt.hidden, m->opt.ffn, 1.0, seed + 2 * expert + 1);
        init_matrix(m->experts + l * size + size / 2, m->opt.ffn, m->opt.hidden, 1.0,
                    seed + 2 * expert + 2);
    }
}

struct moe_model *moe_model_create(const struct moe_options *opt, int first_expert,
                                   int num_local_experts)
{
    struct moe_model *m = moe_alloc(1, sizeof(*m));
    int64_t router = (int64_t)opt->hidden * opt->num_experts, experts;

    m->opt = *opt;
    m->first_expert = first_expert;
    m->num_local_experts = num_local_experts;
    experts = num_local_experts * moe_model_expert_size(m);
    m->router = moe_alloc(router, sizeof(float));
    m->grad_router = moe_alloc(router, sizeof(float));
    m->experts = moe_alloc(experts, sizeof(float));
    m->grad_experts = moe_alloc(experts, sizeof(float));
    m->scratch = moe_alloc((int64_t)3 * opt->ffn + opt->num_experts, sizeof(float));
    init_weights(m);
    return m;
}

void moe_model_free(struct moe_model *m)
{
    if (!m)
        return;
    free(m->router);
    free(m->grad_router);
    free(m->experts);
    free(m->grad_experts);
    free(m->scratch);
    free(m);
}

/* y = x A, with A of rows x columns */
static void multiply(const float *x, const float *a, float *y, int rows, int columns)
{
    memset(y, 0, (size_t)columns * sizeof(*y));
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            y[j] += x[i] * a[(int64_t)i * columns + j];
}

/* The backward of y = x A: grad_x = grad_y A', grad_a += x' grad_y */
static void multiply_backward(const float *x, const float *a, const float *grad_y, float *grad_x,
                              float *grad_a, int rows, int columns)
{
    for (int i = 0; i < rows; i++) {
        const float *a_row = a + (int64_t)i * columns;
        float *grad_row = grad_a + (int64_t)i * columns, sum = 0;

        for (int j = 0; j < columns; j++) {
            sum += a_row[j] * grad_y[j];
            grad_row[j] += x[i] * grad_y[j];
        }
        grad_x[i] = sum;
    }
}

static void softmax(float *row, int n)
{
    float max = row[0], sum = 0;

    for (int i = 1; i < n; i++)
        max = row[i] > max ? row[i] : max;
    for (int i = 0; i < n; i++)
        sum += row[i] = expf(row[i] - max);
    for (int i = 0; i < n; i++)
        row[i] /= sum;
}

static int already_chosen(const int64_t *ids, int n, int expert)
{
    for (int k = 0; k < n; k++)
        if (ids[k] == expert)
            return 1;
    return 0;
}

/* The most probable expert that is not among the n chosen ones; the lowest of equals. */
static int next_choice(const float *probabilities, int num_experts, const int64_t *ids, int n)
{
    int best = -1;

    for (int e = 0; e < num_experts; e++)
        if (!already_chosen(ids, n, e) && (best < 0 || probabilities[e] > probabilities[best]))
            best = e;
    return best;
}

void moe_router_forward(const struct moe_model *m, const float *x, float *probabilities,
                        int64_t *ids, float *weights)
{
    int num_experts = m->opt.num_experts;

    multiply(x, m->router, probabilities, m->opt.hidden, num_experts);
    softmax(probabilities, num_experts);
    for (int k = 0; k < m->opt.top_k; k++) {
        ids[k] = next_choice(probabilities, num_experts, ids, k);
        weights[k] = probabilities[ids[k]];
    }
    for (int k = 1; k < m->opt.top_k; k++)
        if (weights[k] < (float)m->opt.threshold) {
            ids[k] = -1;
            weights[k] = 0;
        }
}

/* The weights are softmax probabilities p as they are: with g the gradient of p, zero for what was
 * not chosen, that of the logits is p * (g - sum of p g). */
void moe_router_backward(struct moe_model *m, const float *x, const float *probabilities,
                         const int64_t *ids, const float *grad_weights, float *grad_x)
{
    int num_experts = m->opt.num_experts;
    float *grad_logits = m->scratch + (int64_t)3 * m->opt.ffn, mean = 0;

    memset(grad_logits, 0, (size_t)num_experts * sizeof(*grad_logits));
    for (int k = 0; k < m->opt.top_k; k++)
        if (ids[k] >= 0) {
            grad_logits[ids[k]] = grad_weights[k];
            mean += probabilities[ids[k]] * grad_weights[k];
        }
    for (int e = 0; e < num_experts; e++)
        grad_logits[e] = probabilities[e] * (grad_logits[e] - mean);
    for (int i = 0; i < m->opt.hidden; i++) {
        int64_t row = (int64_t)i * num_experts;

        for (int e = 0; e < num_experts; e++) {
            grad_x[i] += m->router[row + e] * grad_logits[e];
            m->grad_router[row + e] += x[i] * grad_logits[e];
        }
    }
}

static float sigmoid(float h)
{
    return 1.0f / (1.0f + expf(-h));
}

/* An expert is y = silu(x A) B, with silu(h) = h sigmoid(h). */
void moe_expert_forward(const struct moe_model *m, int expert, const float *x, float *y,
                        int64_t num_rows)
{
    int hidden = m->opt.hidden, ffn = m->opt.ffn;
    const float *a = m->experts + expert * moe_model_expert_size(m);
    const float *b = a + moe_model_expert_size(m) / 2;
    float *h = m->scratch;

    for (int64_t row = 0; row < num_rows; row++, x += hidden, y += hidden) {
        multiply(x, a, h, hidden, ffn);
        for (int f = 0; f < ffn; f++)
            h[f] *= sigmoid(h[f]);
        multiply(h, b, y, ffn, hidden);
    }
}

void moe_expert_backward(struct moe_model *m, int expert, const float *x, const float *grad_y,
                         float *grad_x, int64_t num_rows)
{
    int hidden = m->opt.hidden, ffn = m->opt.ffn;
    int64_t size = moe_model_expert_size(m);
    const float *a = m->experts + expert * size, *b = a + size / 2;
    float *grad_a = m->grad_experts + expert * size, *grad_b = grad_a + size / 2;
    float *h = m->scratch, *silu = h + ffn, *grad_h = silu + ffn;

    for (int64_t row = 0; row < num_rows; row++) {
        multiply(x, a, h, hidden, ffn);
        for (int f = 0; f < ffn; f++)
            silu[f] = h[f] * sigmoid(h[f]);
        multiply_backward(silu, b, grad_y, grad_h, grad_b, ffn, hidden);
        for (int f = 0; f < ffn; f++)
            grad_h[f] *= sigmoid(h[f]) * (1.0f + h[f] * (1.0f - sigmoid(h[f])));
        multiply_backward(x, a, grad_h, grad_x, grad_a, hidden, ffn);
        x += hidden;
        grad_y += hidden;
        grad_x += hidden;
    }
}

static void descend(float *values, float *gradients, int64_t n, float rate)
{
    for (int64_t i = 0; i < n; i++)
        values[i] -= rate * gradients[i];
    memset(gradients, 0, (size_t)n * sizeof(*gradients));
}

void moe_model_update(struct moe_model *m, double rate)
{
    descend(m->router, m->grad_router, (int64_t)m->opt.hidden * m->opt.num_experts, (float)rate);
    descend(m->experts, m->grad_experts, m->num_local_experts * moe_model_expert_size(m),
            (float)rate);
}

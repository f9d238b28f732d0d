/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_moe_serial.c - the same layer without EPX: rank 0 computes every token of every rank in
 * double precision and compares. Of the layer's own arithmetic it shares the parameters, the rows
 * that go in and the choice of experts, so that a near tie cannot fall two ways.
 */
#include "epx_moe.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_COUNTS = 1, TAG_Y, TAG_GRAD_X, TAG_GRAD_EXPERTS, NUM_TAGS = 4 };
enum { MAX_MESSAGES = 20 };

/* The largest difference and the largest value of a step, and the worst ratio of all steps. */
struct deviation {
    double difference, scale, worst;
};

enum { OUTPUT, GRAD_INPUT, GRAD_EXPERTS, GRAD_ROUTER, LOSS, NUM_QUANTITIES };

static const char *const quantity_names[NUM_QUANTITIES] = {
    "output rows", "input gradients", "expert gradients", "router gradients", "loss"};

struct moe_check {
    const struct moe_text *text;
    struct moe_options opt;
    int rank, num_ranks;
    int64_t errors;
    struct deviation deviations[NUM_QUANTITIES];
    /* the members below: on rank 0 only */
    struct moe_model *model; /* all experts */
    int64_t *capacity;       /* [R] receive rows */
    int64_t *next_slot;      /* [E], or [R] rank-major */
    int64_t *expert_counts;  /* [E] pairs that found room, this step */
    int64_t step_tokens;
    double loss;
    double *grad_experts, *grad_router;
    /* work space of one token */
    float *x, *target, *probabilities, *weights;
    int64_t *ids;
    double *p, *grad_logits;                /* [E] */
    double *y, *grad_y, *grad_x;            /* [H] */
    double *hidden, *silu, *out, *grad_out; /* [K][F], [K][F], [K][H], [K] */
    /* work space of one rank */
    float *rows;
    int32_t *counts;
};

static void alloc_root(struct moe_check *c)
{
    int64_t h = c->opt.hidden, e = c->opt.num_experts, k = c->opt.top_k, f = c->opt.ffn;
    int64_t size = moe_model_expert_size(c->model);

    c->next_slot = moe_alloc(e > c->num_ranks ? e : c->num_ranks, sizeof(int64_t));
    c->expert_counts = moe_alloc(e, sizeof(int64_t));
    c->grad_experts = moe_alloc(e * size, sizeof(double));
    c->grad_router = moe_alloc(h * e, sizeof(double));
    c->x = moe_alloc(2 * h + e + k, sizeof(float));
    c->target = c->x + h;
    c->probabilities = c->target + h;
    c->weights = c->probabilities + e;
    c->ids = moe_alloc(k, sizeof(int64_t));
    c->p = moe_alloc(2 * e + 3 * h + k * (2 * f + h + 1), sizeof(double));
    c->grad_logits = c->p + e;
    c->y = c->grad_logits + e;
    c->grad_y = c->y + h;
    c->grad_x = c->grad_y + h;
    c->hidden = c->grad_x + h;
    c->silu = c->hidden + k * f;
    c->out = c->silu + k * f;
    c->grad_out = c->out + k * h;
    c->rows = moe_alloc(2 * c->opt.max_tokens * h, sizeof(float));
    c->counts = moe_alloc(e, sizeof(int32_t));
}

struct moe_check *moe_check_create(const struct moe_layer *layer, const struct moe_text *text)
{
    struct moe_check *c = moe_alloc(1, sizeof(*c));

    c->text = text;
    c->opt = layer->opt;
    c->rank = layer->rank;
    c->num_ranks = layer->num_ranks;
    c->capacity = moe_alloc(c->num_ranks, sizeof(int64_t));
    MPI_Gather(&layer->view.capacity, 1, MPI_INT64_T, c->capacity, 1, MPI_INT64_T, 0,
               MPI_COMM_WORLD);
    if (c->rank == 0) {
        c->model = moe_model_create(&c->opt, 0, c->opt.num_experts);
        alloc_root(c);
    }
    return c;
}

void moe_check_free(struct moe_check *c)
{
    moe_model_free(c->model);
    free(c->capacity);
    free(c->next_slot);
    free(c->expert_counts);
    free(c->grad_experts);
    free(c->grad_router);
    free(c->x);
    free(c->ids);
    free(c->p);
    free(c->rows);
    free(c->counts);
    free(c);
}

static int first_expert(const struct moe_check *c, int rank)
{
    return (int)((int64_t)rank * c->opt.num_experts / c->num_ranks);
}

static int expert_owner(const struct moe_check *c, int64_t expert)
{
    int rank = 0;

    while (first_expert(c, rank + 1) <= expert)
        rank++;
    return rank;
}

/* The larger of both; a NaN is larger than any number and stays. */
static double larger(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

static void compare(struct deviation *d, double value, double reference)
{
    d->difference = larger(fabs(value - reference), d->difference);
    d->scale = larger(fabs(reference), d->scale);
}

/* Rows, experts' ids and weights of one token, and the softmax in double precision. */
static void read_token(struct moe_check *c, int64_t token)
{
    int num_experts = c->opt.num_experts;
    double max = -DBL_MAX, sum = 0;

    moe_text_embed(c->text, token, c->x, c->opt.hidden);
    moe_text_target(c->text, token, c->target, c->opt.hidden);
    moe_router_forward(c->model, c->x, c->probabilities, c->ids, c->weights);
    for (int e = 0; e < num_experts; e++) {
        c->p[e] = 0;
        for (int i = 0; i < c->opt.hidden; i++)
            c->p[e] += (double)c->x[i] * c->model->router[(int64_t)i * num_experts + e];
        max = fmax(max, c->p[e]);
    }
    for (int e = 0; e < num_experts; e++)
        sum += c->p[e] = exp(c->p[e] - max);
    for (int e = 0; e < num_experts; e++)
        c->p[e] /= sum;
}

/* Expert-major: the first slot of each expert is where the slab before it ends. */
static void place_slabs(struct moe_check *c, int64_t step)
{
    int64_t *pairs = moe_alloc(c->opt.num_experts, sizeof(*pairs)), first, slot = 0;

    for (int r = 0; r < c->num_ranks; r++) {
        int n = moe_text_batch(c->text, r, c->num_ranks, c->opt.max_tokens, step, &first);

        for (int64_t token = first; token < first + n; token++) {
            read_token(c, token);
            for (int k = 0; k < c->opt.top_k; k++)
                if (c->ids[k] >= 0)
                    pairs[c->ids[k]]++;
        }
    }
    for (int e = 0; e < c->opt.num_experts; e++) {
        if (e == first_expert(c, expert_owner(c, e)))
            slot = 0;
        c->next_slot[e] = slot;
        slot += pairs[e];
    }
    free(pairs);
}

static void drop_expert_major(struct moe_check *c)
{
    for (int k = 0; k < c->opt.top_k; k++)
        if (c->ids[k] >= 0 && c->next_slot[c->ids[k]]++ >= c->capacity[expert_owner(c, c->ids[k])])
            c->ids[k] = -1;
}

/* The choices of a token on one rank share a row. */
static void drop_rank_major(struct moe_check *c)
{
    for (int r = 0; r < c->num_ranks; r++) {
        int there = 0, full = c->next_slot[r] >= c->capacity[r];

        for (int k = 0; k < c->opt.top_k; k++)
            if (c->ids[k] >= 0 && expert_owner(c, c->ids[k]) == r) {
                there = 1;
                c->ids[k] = full ? -1 : c->ids[k];
            }
        c->next_slot[r] += there;
    }
}

/* Leaves out the choices that find no room at their expert's rank. */
static void drop_pairs(struct moe_check *c)
{
    if (c->opt.layout == EPX_RANK_MAJOR)
        drop_rank_major(c);
    else
        drop_expert_major(c);
    for (int k = 0; k < c->opt.top_k; k++)
        if (c->ids[k] >= 0)
            c->expert_counts[c->ids[k]]++;
}

static void expert_forward(struct moe_check *c, int k)
{
    int h = c->opt.hidden, f = c->opt.ffn;
    const float *a = c->model->experts + c->ids[k] * moe_model_expert_size(c->model);
    const float *b = a + (int64_t)h * f;
    double *hidden = c->hidden + (int64_t)k * f, *silu = c->silu + (int64_t)k * f;
    double *out = c->out + (int64_t)k * h;

    for (int j = 0; j < f; j++) {
        hidden[j] = 0;
        for (int i = 0; i < h; i++)
            hidden[j] += (double)c->x[i] * a[(int64_t)i * f + j];
        silu[j] = hidden[j] / (1.0 + exp(-hidden[j]));
    }
    for (int i = 0; i < h; i++) {
        out[i] = 0;
        for (int j = 0; j < f; j++)
            out[i] += silu[j] * b[(int64_t)j * h + i];
    }
}

/* The gradient of silu at h, from silu(h) = h s and s' = s (1 - s): s + silu(h) (1 - s). */
static double silu_slope(double h)
{
    double s = 1.0 / (1.0 + exp(-h));

    return s + h * s * (1.0 - s);
}

static void expert_backward(struct moe_check *c, int k)
{
    int h = c->opt.hidden, f = c->opt.ffn;
    int64_t start = c->ids[k] * moe_model_expert_size(c->model), middle = (int64_t)h * f;
    const float *a = c->model->experts + start, *b = a + middle;
    double *grad_a = c->grad_experts + start, *grad_b = grad_a + middle;
    double weight = c->p[c->ids[k]];

    for (int j = 0; j < f; j++) {
        double silu = c->silu[(int64_t)k * f + j], grad_h = 0;

        for (int i = 0; i < h; i++) {
            grad_h += weight * c->grad_y[i] * b[(int64_t)j * h + i];
            grad_b[(int64_t)j * h + i] += weight * c->grad_y[i] * silu;
        }
        grad_h *= silu_slope(c->hidden[(int64_t)k * f + j]);
        for (int i = 0; i < h; i++) {
            c->grad_x[i] += grad_h * a[(int64_t)i * f + j];
            grad_a[(int64_t)i * f + j] += grad_h * c->x[i];
        }
    }
}

static void layer_forward(struct moe_check *c)
{
    int h = c->opt.hidden;

    memset(c->y, 0, (size_t)h * sizeof(*c->y));
    for (int k = 0; k < c->opt.top_k; k++) {
        if (c->ids[k] < 0)
            continue;
        expert_forward(c, k);
        for (int i = 0; i < h; i++)
            c->y[i] += c->p[c->ids[k]] * c->out[(int64_t)k * h + i];
    }
    for (int i = 0; i < h; i++) {
        c->grad_y[i] = c->y[i] - c->target[i];
        c->loss += 0.5 * c->grad_y[i] * c->grad_y[i];
    }
}

/* The logits' gradient by the Jacobian of softmax, dp_j/dl_e = p_j ((j == e) - p_e). */
static void router_backward(struct moe_check *c)
{
    int h = c->opt.hidden, num_experts = c->opt.num_experts;

    for (int e = 0; e < num_experts; e++) {
        c->grad_logits[e] = 0;
        for (int k = 0; k < c->opt.top_k; k++)
            if (c->ids[k] >= 0)
                c->grad_logits[e] +=
                    c->grad_out[k] * c->p[c->ids[k]] * ((c->ids[k] == e) - c->p[e]);
    }
    for (int i = 0; i < h; i++)
        for (int e = 0; e < num_experts; e++) {
            c->grad_x[i] += c->grad_logits[e] * c->model->router[(int64_t)i * num_experts + e];
            c->grad_router[(int64_t)i * num_experts + e] += c->grad_logits[e] * c->x[i];
        }
}

static void layer_backward(struct moe_check *c)
{
    int h = c->opt.hidden;

    memset(c->grad_x, 0, (size_t)h * sizeof(*c->grad_x));
    for (int k = 0; k < c->opt.top_k; k++) {
        c->grad_out[k] = 0;
        if (c->ids[k] < 0)
            continue;
        for (int i = 0; i < h; i++)
            c->grad_out[k] += c->grad_y[i] * c->out[(int64_t)k * h + i];
        expert_backward(c, k);
    }
    router_backward(c);
}

static void check_tokens(struct moe_check *c, int rank, int64_t step)
{
    int64_t h = c->opt.hidden, first;
    int n = moe_text_batch(c->text, rank, c->num_ranks, c->opt.max_tokens, step, &first);
    float *y = c->rows, *grad_x = y + n * h;

    MPI_Recv(y, (int)(n * h), MPI_FLOAT, rank, TAG_Y, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(grad_x, (int)(n * h), MPI_FLOAT, rank, TAG_GRAD_X, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    c->step_tokens += n;
    for (int t = 0; t < n; t++) {
        read_token(c, first + t);
        drop_pairs(c);
        layer_forward(c);
        layer_backward(c);
        for (int i = 0; i < h; i++) {
            compare(&c->deviations[OUTPUT], y[t * h + i], c->y[i]);
            compare(&c->deviations[GRAD_INPUT], grad_x[t * h + i], c->grad_x[i]);
        }
    }
}

/* Compares the numbers of rows of each expert, exactly, and the gradients. The layer's gradients
 * then replace the serial model's, so that both descend by the same numbers. */
static void check_experts(struct moe_check *c, int rank)
{
    int first = first_expert(c, rank), n = first_expert(c, rank + 1) - first;
    int64_t size = moe_model_expert_size(c->model), start = first * size;
    float *grads = c->model->grad_experts + start;

    MPI_Recv(c->counts, n, MPI_INT32_T, rank, TAG_COUNTS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(grads, (int)(n * size), MPI_FLOAT, rank, TAG_GRAD_EXPERTS, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    for (int e = 0; e < n; e++) {
        if (c->counts[e] == c->expert_counts[first + e] || c->errors++ >= MAX_MESSAGES)
            continue;
        fprintf(stderr, "expert %d has %d rows, but the serial count is %lld\n", first + e,
                (int)c->counts[e], (long long)c->expert_counts[first + e]);
    }
    for (int64_t i = 0; i < n * size; i++)
        compare(&c->deviations[GRAD_EXPERTS], grads[i], c->grad_experts[start + i]);
}

/*
 * A float sum of n terms is off by some sqrt(n) of its roundings, FLT_EPSILON/2 each, if they fall
 * either way, and by n if all fall the same way. An output element is a chain of the sums over
 * hidden, ffn and top-k; a gradient doubles the chain and adds the router's. A parameter's
 * gradient sums over the tokens besides, and so does the loss. Against the largest element of the
 * step 8 sqrt(n) roundings leave room for unlucky ones, while a row that is lost, doubled or sent
 * to a wrong place differs in the first digits.
 */
static double tolerance(const struct moe_check *c, int quantity)
{
    const struct moe_options *o = &c->opt;
    double n = (double)o->hidden + o->ffn + o->top_k;

    if (quantity != OUTPUT)
        n = 2 * n + o->num_experts;
    if (quantity == GRAD_EXPERTS || quantity == GRAD_ROUTER || quantity == LOSS)
        n += (double)c->step_tokens;
    return 8 * sqrt(n) * FLT_EPSILON / 2;
}

static void judge(struct moe_check *c, int64_t step)
{
    for (int q = 0; q < NUM_QUANTITIES; q++) {
        struct deviation *d = &c->deviations[q];
        double ratio = d->difference > 0 ? d->difference / d->scale : d->difference;

        if (!(ratio <= tolerance(c, q)) && c->errors++ < MAX_MESSAGES)
            fprintf(stderr, "step %lld: %s: deviation %g of the largest, more than %g\n",
                    (long long)step, quantity_names[q], ratio, tolerance(c, q));
        d->worst = larger(ratio, d->worst);
    }
}

static void start_step(struct moe_check *c, int64_t step)
{
    int64_t router = (int64_t)c->opt.hidden * c->opt.num_experts;
    int64_t experts = c->opt.num_experts * moe_model_expert_size(c->model);

    c->step_tokens = 0;
    c->loss = 0;
    for (int q = 0; q < NUM_QUANTITIES; q++)
        c->deviations[q].difference = c->deviations[q].scale = 0;
    memset(c->grad_router, 0, (size_t)router * sizeof(double));
    memset(c->grad_experts, 0, (size_t)experts * sizeof(double));
    memset(c->expert_counts, 0, (size_t)c->opt.num_experts * sizeof(int64_t));
    if (c->opt.layout == EPX_RANK_MAJOR)
        memset(c->next_slot, 0, (size_t)c->num_ranks * sizeof(int64_t));
    else
        place_slabs(c, step);
}

static void check_router(struct moe_check *c, const struct moe_model *model)
{
    int64_t router = (int64_t)c->opt.hidden * c->opt.num_experts;

    for (int64_t i = 0; i < router; i++) {
        compare(&c->deviations[GRAD_ROUTER], model->grad_router[i], c->grad_router[i]);
        c->model->grad_router[i] = model->grad_router[i];
    }
}

static void check_all(struct moe_check *c, const struct moe_layer *l, int64_t step, double loss)
{
    start_step(c, step);
    for (int r = 0; r < c->num_ranks; r++)
        check_tokens(c, r, step);
    for (int r = 0; r < c->num_ranks; r++)
        check_experts(c, r);
    check_router(c, l->model);
    compare(&c->deviations[LOSS], loss, c->loss);
    judge(c, step);
}

void moe_check_step(struct moe_check *c, const struct moe_layer *l, const struct moe_batch *b,
                    int64_t step, double loss)
{
    int rows = b->num_tokens * l->opt.hidden, n = l->view.num_local_experts;
    int64_t size = moe_model_expert_size(l->model);
    MPI_Request requests[NUM_TAGS];
    MPI_Status statuses[NUM_TAGS];

    MPI_Isend(l->expert_counts, n, MPI_INT32_T, 0, TAG_COUNTS, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(b->y, rows, MPI_FLOAT, 0, TAG_Y, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(b->grad_x, rows, MPI_FLOAT, 0, TAG_GRAD_X, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(l->model->grad_experts, (int)(n * size), MPI_FLOAT, 0, TAG_GRAD_EXPERTS,
              MPI_COMM_WORLD, &requests[3]);
    if (c->rank == 0)
        check_all(c, l, step, loss);
    MPI_Waitall(NUM_TAGS, requests, statuses);
}

void moe_check_update(struct moe_check *c, double rate)
{
    if (c->rank == 0)
        moe_model_update(c->model, rate);
}

int64_t moe_check_report(const struct moe_check *c)
{
    int64_t errors = c->errors;

    if (c->rank == 0)
        for (int q = 0; q < NUM_QUANTITIES; q++)
            printf("deviation of %-16s  %.1e\n", quantity_names[q], c->deviations[q].worst);
    MPI_Bcast(&errors, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    return errors;
}

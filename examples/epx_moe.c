/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_moe.c - trains a small mixture-of-experts layer to name the next token of a text, and checks
 * every step against a serial computation. epx_moe(1) describes options and output.
 */
#include "epx_moe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void create_batch(const struct moe_options *o, struct moe_batch *b)
{
    int64_t rows = o->max_tokens;

    b->x = moe_alloc(rows * o->hidden, sizeof(float));
    b->target = moe_alloc(rows * o->hidden, sizeof(float));
    b->y = moe_alloc(rows * o->hidden, sizeof(float));
    b->grad_y = moe_alloc(rows * o->hidden, sizeof(float));
    b->grad_x = moe_alloc(rows * o->hidden, sizeof(float));
    b->probabilities = moe_alloc(rows * o->num_experts, sizeof(float));
    b->ids = moe_alloc(rows * o->top_k, sizeof(int64_t));
    b->weights = moe_alloc(rows * o->top_k, sizeof(float));
    b->grad_weights = moe_alloc(rows * o->top_k, sizeof(float));
}

static void free_batch(struct moe_batch *b)
{
    free(b->x);
    free(b->target);
    free(b->y);
    free(b->grad_y);
    free(b->grad_x);
    free(b->probabilities);
    free(b->ids);
    free(b->weights);
    free(b->grad_weights);
}

static void read_batch(const struct moe_layer *l, const struct moe_text *text, int64_t step,
                       struct moe_batch *b)
{
    int64_t hidden = l->opt.hidden, first;

    b->num_tokens = moe_text_batch(text, l->rank, l->num_ranks, l->opt.max_tokens, step, &first);
    for (int t = 0; t < b->num_tokens; t++) {
        moe_text_embed(text, first + t, b->x + t * hidden, (int)hidden);
        moe_text_target(text, first + t, b->target + t * hidden, (int)hidden);
    }
}

/* Fills in the losses per token, of all ranks. */
static void run_step(struct moe_layer *l, struct moe_batch *b, struct moe_check *check,
                     int64_t step, struct moe_progress *progress)
{
    double sums[3], rate;

    moe_layer_forward(l, b);
    moe_layer_backward(l, b);
    moe_report_loss(&l->opt, b, &sums[0], &sums[1]);
    sums[2] = b->num_tokens;
    MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    moe_check_step(check, l, b, step, sums[0]);
    rate = sums[2] > 0 ? l->opt.rate / sums[2] : 0;
    moe_model_update(l->model, rate);
    moe_check_update(check, rate);
    progress->tokens += (int64_t)sums[2];
    progress->loss = sums[2] > 0 ? sums[0] / sums[2] : 0;
    progress->zero_loss = sums[2] > 0 ? sums[1] / sums[2] : 0;
    progress->first_loss = step ? progress->first_loss : progress->loss;
}

/* A pass over the text, at most 16 steps of it, if the user named no number. */
static int64_t count_steps(const struct moe_options *o, int64_t pass)
{
    if (o->steps)
        return o->steps;
    return pass < 16 ? pass : 16;
}

static int64_t run(struct moe_layer *l, const struct moe_text *text)
{
    struct moe_batch batch = {0};
    struct moe_check *check = moe_check_create(l, text);
    struct moe_progress progress = {.pass =
                                        moe_text_batches(text, l->num_ranks, l->opt.max_tokens)};
    int64_t errors;

    progress.steps = count_steps(&l->opt, progress.pass);
    create_batch(&l->opt, &batch);
    moe_report_start(l, &progress);
    for (int64_t step = 0; step < progress.steps; step++) {
        read_batch(l, text, step, &batch);
        run_step(l, &batch, check, step, &progress);
        if (l->rank == 0)
            moe_report_step(&progress, step);
    }
    moe_report_end(l, &progress);
    moe_report_loads(l);
    moe_report_times(l);
    errors = moe_check_report(check);
    free_batch(&batch);
    moe_check_free(check);
    return errors;
}

/* Answers the number of errors. */
static int64_t run_file(const struct moe_options *opt)
{
    struct moe_text text;
    struct moe_layer layer;
    int error = moe_text_read(opt->file, &text);
    int64_t errors;

    if (error) {
        if (opt->speaks)
            fprintf(stderr, "epx_moe: cannot read %s: %s\n", opt->file, strerror(error));
        return 1;
    }
    moe_report_text(opt, &text);
    moe_layer_create(opt, &layer);
    errors = run(&layer, &text);
    moe_layer_free(&layer);
    moe_text_free(&text);
    if (opt->speaks && errors)
        printf("Found %lld errors\n", (long long)errors);
    else if (opt->speaks)
        printf(" No Errors\n");
    return errors;
}

int main(int argc, char **argv)
{
    struct moe_options opt = {.num_experts = 16,
                              .top_k = 4,
                              .hidden = 64,
                              .ffn = 128,
                              .max_tokens = 512,
                              .layout = EPX_EXPERT_MAJOR,
                              .threshold = 0.05,
                              .rate = 0.5,
                              .seed = 1};
    int rank, failed;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    opt.speaks = rank == 0;
    failed = !moe_options_parse(argc, argv, &opt);
    if (!failed && opt.help && rank == 0)
        moe_options_usage();
    else if (!failed && !opt.help)
        failed = run_file(&opt) != 0;
    MPI_Finalize();
    return failed;
}

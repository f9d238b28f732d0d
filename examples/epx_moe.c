/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_moe.c - trains a small mixture-of-experts layer to name the next token of a text, and checks
 * every step against a serial computation. epx_moe(1) describes options and output.
 */
#define _POSIX_C_SOURCE 200809L
#include "epx_moe.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: epx_moe [-c factor] [-d hidden] [-e experts] [-f ffn] [-i steps] [-k top_k]\n"
    "               [-l expert|rank] [-p threshold] [-r rate] [-s seed] [-t tokens] file\n";

/* Both leave the value alone and answer 0 if the text is no number between the bounds. */
static int parse_int(const char *text, int min, int max, int *value)
{
    char *end;
    long number;

    errno = 0;
    number = strtol(text, &end, 10);
    if (end == text || *end || errno || number < min || number > max)
        return 0;
    *value = (int)number;
    return 1;
}

static int parse_double(const char *text, double max, double *value)
{
    char *end;
    double number = strtod(text, &end);

    if (end == text || *end || !(number >= 0 && number <= max))
        return 0;
    *value = number;
    return 1;
}

static int parse_seed(const char *text, uint64_t *seed)
{
    char *end;

    errno = 0;
    *seed = strtoull(text, &end, 10);
    return end != text && !*end && !errno && *text != '-';
}

static int parse_layout(const char *text, EPX_Layout *layout)
{
    *layout = strcmp(text, "rank") == 0 ? EPX_RANK_MAJOR : EPX_EXPERT_MAJOR;
    return *layout == EPX_RANK_MAJOR || strcmp(text, "expert") == 0;
}

static int parse_option(int letter, struct moe_options *o)
{
    switch (letter) {
    case 'c': return parse_double(optarg, 1e6, &o->capacity_factor);
    case 'd': return parse_int(optarg, 1, 1 << 20, &o->hidden);
    case 'e': return parse_int(optarg, 1, 1 << 20, &o->num_experts);
    case 'f': return parse_int(optarg, 1, 1 << 20, &o->ffn);
    case 'i': return parse_int(optarg, 0, INT_MAX, &o->steps);
    case 'k': return parse_int(optarg, 1, 64, &o->top_k);
    case 'l': return parse_layout(optarg, &o->layout);
    case 'p': return parse_double(optarg, 1, &o->threshold);
    case 'r': return parse_double(optarg, 1e6, &o->rate);
    case 's': return parse_seed(optarg, &o->seed);
    case 't': return parse_int(optarg, 1, 1 << 24, &o->max_tokens);
    default: return 0;
    }
}

/* What MPI counts with an int must fit one. */
static const char *check_options(const struct moe_options *o)
{
    if (o->top_k > o->num_experts)
        return "-k is more than the experts";
    if ((double)o->max_tokens * o->hidden > INT_MAX)
        return "-t times -d is too large";
    if (2.0 * o->num_experts * o->hidden * o->ffn > INT_MAX)
        return "-e times -d times -f is too large";
    return NULL;
}

/* Every rank parses the same arguments; rank 0 speaks. */
static int parse_options(int argc, char **argv, int rank, struct moe_options *o)
{
    const char *wrong;
    int letter;

    opterr = rank == 0;
    while ((letter = getopt(argc, argv, "c:d:e:f:i:k:l:p:r:s:t:")) != -1)
        if (!parse_option(letter, o)) {
            if (rank == 0 && letter != '?')
                fprintf(stderr, "epx_moe: -%c cannot be \"%s\"\n", letter, optarg);
            return 0;
        }
    wrong = optind != argc - 1 ? "give one text file" : check_options(o);
    if (wrong && rank == 0)
        fprintf(stderr, "epx_moe: %s\n", wrong);
    o->file = argv[optind];
    return !wrong;
}

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

/* Half the square of y - target, summed over this rank's tokens. */
static double square_loss(const struct moe_options *o, const struct moe_batch *b)
{
    double loss = 0;

    for (int64_t i = 0; i < (int64_t)b->num_tokens * o->hidden; i++) {
        float difference = b->y[i] - b->target[i];

        loss += 0.5 * difference * difference;
    }
    return loss;
}

/* Answers the loss per token; tokens counts those of all ranks and steps. */
static double run_step(struct moe_layer *l, struct moe_batch *b, struct moe_check *check,
                       int64_t step, int64_t *tokens)
{
    double sums[2], rate;

    moe_layer_forward(l, b);
    moe_layer_backward(l, b);
    sums[0] = square_loss(&l->opt, b);
    sums[1] = b->num_tokens;
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    moe_check_step(check, l, b, step, sums[0]);
    rate = sums[1] > 0 ? l->opt.rate / sums[1] : 0;
    moe_model_update(l->model, rate);
    moe_check_update(check, rate);
    *tokens += (int64_t)sums[1];
    return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

static void print_transport(const struct moe_layer *l)
{
    char transport[64] = "unknown";
    MPI_Info info;
    int found;

    if (EPX_Comm_get_info(l->comm, &info) != EPX_SUCCESS)
        return;
    MPI_Info_get(info, "epx_transport", sizeof(transport) - 1, transport, &found);
    MPI_Info_free(&info);
    if (l->rank == 0)
        printf("%d ranks, transport %s, rows %s-major\n", l->num_ranks, transport,
               l->opt.layout == EPX_RANK_MAJOR ? "rank" : "expert");
}

static void print_loads(const char *what, const int64_t *loads, int n)
{
    int64_t sum = 0, max = 0;

    printf("%s:", what);
    for (int i = 0; i < n; i++) {
        printf("%s%lld", i && i % 12 == 0 ? "\n  " : " ", (long long)loads[i]);
        sum += loads[i];
        max = loads[i] > max ? loads[i] : max;
    }
    printf("\n  imbalance %.2f (largest / mean)\n", sum ? (double)max * n / (double)sum : 0.0);
}

static void report_loads(const struct moe_layer *l)
{
    int64_t *ranks = moe_alloc(l->num_ranks, sizeof(*ranks));
    int64_t *experts = moe_alloc(l->opt.num_experts, sizeof(*experts));

    MPI_Gather(&l->rows, 1, MPI_INT64_T, ranks, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    MPI_Reduce(l->expert_rows, experts, l->opt.num_experts, MPI_INT64_T, MPI_SUM, 0,
               MPI_COMM_WORLD);
    if (l->rank == 0) {
        print_loads("rows per rank", ranks, l->num_ranks);
        print_loads("pairs per expert", experts, l->opt.num_experts);
    }
    free(ranks);
    free(experts);
}

static void report_times(const struct moe_layer *l)
{
    static const char *const names[MOE_NUM_PHASES] = {"router",           "route",
                                                      "dispatch",         "experts",
                                                      "combine",          "combine backward",
                                                      "experts backward", "dispatch backward",
                                                      "router backward"};
    double seconds[MOE_NUM_PHASES];

    MPI_Reduce(l->seconds, seconds, MOE_NUM_PHASES, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (l->rank == 0)
        for (int i = 0; i < MOE_NUM_PHASES; i++)
            printf("%-17s %9.3f ms\n", names[i], 1e3 * seconds[i]);
}

/* A pass over the text, at most 16 steps of it, if the user named no number. */
static int64_t count_steps(const struct moe_layer *l, const struct moe_text *text)
{
    int64_t batches = moe_text_batches(text, l->num_ranks, l->opt.max_tokens);

    if (l->opt.steps)
        return l->opt.steps;
    return batches < 16 ? batches : 16;
}

static int64_t run(struct moe_layer *l, const struct moe_text *text)
{
    struct moe_batch batch = {0};
    struct moe_check *check = moe_check_create(l, text);
    int64_t steps = count_steps(l, text), tokens = 0, errors;
    double loss = 0, first_loss = 0;

    create_batch(&l->opt, &batch);
    for (int64_t step = 0; step < steps; step++) {
        read_batch(l, text, step, &batch);
        loss = run_step(l, &batch, check, step, &tokens);
        first_loss = step ? first_loss : loss;
    }
    if (l->rank == 0)
        printf("%lld tokens in %lld steps, loss per token %.3f, at first %.3f\n", (long long)tokens,
               (long long)steps, loss, first_loss);
    report_loads(l);
    report_times(l);
    errors = moe_check_report(check);
    free_batch(&batch);
    moe_check_free(check);
    return errors;
}

/* Answers the number of errors. */
static int64_t run_file(const struct moe_options *opt, int rank)
{
    struct moe_text text;
    struct moe_layer layer;
    int error = moe_text_read(opt->file, &text);
    int64_t errors;

    if (error) {
        if (rank == 0)
            fprintf(stderr, "epx_moe: cannot read %s: %s\n", opt->file, strerror(error));
        return 1;
    }
    if (rank == 0)
        printf("%s: %lld tokens, %lld different\n", opt->file, (long long)text.num_tokens,
               (long long)moe_text_vocabulary(&text));
    moe_layer_create(opt, &layer);
    print_transport(&layer);
    errors = run(&layer, &text);
    moe_layer_free(&layer);
    moe_text_free(&text);
    if (rank == 0 && errors)
        printf("Found %lld errors\n", (long long)errors);
    else if (rank == 0)
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
    failed = !parse_options(argc, argv, rank, &opt);
    if (failed && rank == 0)
        fputs(usage, stderr);
    else if (!failed)
        failed = run_file(&opt, rank) != 0;
    MPI_Finalize();
    return failed;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_moe_report.c - what epx_moe prints while it trains and at the end. Rank 0 prints. */
#include "epx_moe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* From so many steps on not every one has a line. */
enum { MANY_STEPS = 33 };
enum { MUCH_TEXT = 4 << 20 };

void moe_report_loss(const struct moe_options *o, const struct moe_batch *b, double *loss,
                     double *zero_loss)
{
    *loss = *zero_loss = 0;
    for (int64_t i = 0; i < (int64_t)b->num_tokens * o->hidden; i++) {
        float difference = b->y[i] - b->target[i];

        *loss += 0.5 * difference * difference;
        *zero_loss += 0.5 * b->target[i] * b->target[i];
    }
}

void moe_report_text(const struct moe_options *o, const struct moe_text *text)
{
    if (!o->speaks)
        return;
    if (text->num_bytes >= MUCH_TEXT)
        printf("%s: %lld MiB are read, now their different tokens are counted\n", o->file,
               (long long)(text->num_bytes >> 20));
    fflush(stdout);
    printf("%s: %lld tokens, %lld different\n", o->file, (long long)text->num_tokens,
           (long long)moe_text_vocabulary(text));
    fflush(stdout);
}

static void print_layer(const struct moe_layer *l)
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

void moe_report_start(const struct moe_layer *l, struct moe_progress *p)
{
    print_layer(l);
    p->begun = p->printed = MPI_Wtime();
    if (l->rank)
        return;
    printf("loss: how far the layer's guess is from the next token, per token (half the squared\n"
           "distance of their rows); 100%% is a layer that always answers zeros, 0%% is never "
           "wrong\n");
    if (p->steps >= MANY_STEPS)
        printf("%lld steps, of which one a second is shown\n", (long long)p->steps);
    fflush(stdout);
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

void moe_report_step(struct moe_progress *p, int64_t step)
{
    double now = MPI_Wtime(), passed = now - p->begun;
    int64_t left = p->steps - step - 1;

    if (p->steps >= MANY_STEPS && step && left && now - p->printed < 1)
        return;
    p->printed = now;
    printf("step %3lld of %lld: loss %7.3f, %3.0f%%, after %.1f s", (long long)step + 1,
           (long long)p->steps, p->loss, percent(p->loss, p->zero_loss), passed);
    if (p->steps >= MANY_STEPS && left)
        printf(", about %.0f s to go", passed * (double)left / (double)(step + 1));
    putchar('\n');
    fflush(stdout);
}

/* Why there were no more steps. */
static void print_stop(const struct moe_options *o, const struct moe_progress *p)
{
    if (o->steps)
        printf("stopped after the %lld steps of --steps; ", (long long)p->steps);
    else if (p->steps < p->pass)
        printf("stopped after %lld steps, the most without --steps; ", (long long)p->steps);
    else
        printf("stopped at the end of the text, --steps goes over it again; ");
    printf("once through the text is --steps %lld\n", (long long)p->pass);
}

void moe_report_end(const struct moe_layer *l, const struct moe_progress *p)
{
    if (l->rank)
        return;
    print_stop(&l->opt, p);
    printf("%lld tokens in %lld steps, loss per token %.3f, at first %.3f: ", (long long)p->tokens,
           (long long)p->steps, p->loss, p->first_loss);
    if (!isfinite(p->loss))
        puts("the steps were too large, try a smaller --rate");
    else if (p->loss < p->first_loss)
        puts("the layer has learned");
    else
        puts("no better than at first");
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

void moe_report_loads(const struct moe_layer *l)
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

void moe_report_times(const struct moe_layer *l)
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

/* SPDX-License-Identifier: BSD-3-Clause */
/* overlap.c - one batch travels while the experts work on another. */
#include <epx.h>
#include <stdio.h>

enum { BATCHES = 2, TOKENS = 4, CHOICES = 2, HIDDEN = 2, EXPERTS = 8 };

struct batch {
    EPX_Route route; /* a batch in flight needs a route of its own */
    EPX_Route_view view;
    EPX_Request requests[2];
    float tokens[TOKENS][HIDDEN], sums[TOKENS][HIDDEN];
    float *rows, *row_weights;
};

static const int64_t ids[TOKENS][CHOICES] = {
    {0, 5}, {3, 6}, {7, 1}, {2, -1}};
static const float weights[TOKENS][CHOICES] = {
    {.25f, .75f}, {.5f, .5f}, {.5f, .5f}, {1, 0}};

static void open_batch(struct batch *b, int number, EPX_Comm comm)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = EXPERTS;
    attr.top_k = CHOICES;
    attr.max_tokens = TOKENS;
    EPX_Route_create(&attr, comm, &b->route);
    b->view = (EPX_Route_view)EPX_ROUTE_VIEW_INIT;
    EPX_Route_get_view(b->route, &b->view);
    EPX_Alloc_mem(b->view.capacity * (MPI_Aint)sizeof(float) * HIDDEN,
                  comm, &b->rows);
    EPX_Alloc_mem(b->view.capacity * (MPI_Aint)sizeof(float), comm,
                  &b->row_weights);
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HIDDEN; h++)
            b->tokens[t][h] = (float)(number * 100 + t * 10 + h);
}

static void send(struct batch *b)
{
    EPX_Route_tokens(ids, TOKENS, b->route, EPX_STREAM_NULL,
                     &b->requests[0]);
    EPX_Dispatch(b->tokens, weights[0], b->rows, b->row_weights, HIDDEN,
                 EPX_FLOAT32, b->route, EPX_STREAM_NULL,
                 &b->requests[1]);
}

static void compute(struct batch *b)
{
    const EPX_Route_view *view = &b->view;

    EPX_Waitall(2, b->requests, MPI_STATUSES_IGNORE);
    for (int e = 0; e < view->num_local_experts; e++) {
        float *slab = b->rows + view->expert_offsets[e] * HIDDEN;

        for (int i = 0; i < view->expert_counts[e] * HIDDEN; i++)
            slab[i] *= (float)(view->first_local_expert + e);
    }
}

static void bring_home(struct batch *b)
{
    EPX_Combine(b->rows, b->row_weights, b->sums, HIDDEN, EPX_FLOAT32,
                b->route, EPX_STREAM_NULL, &b->requests[0]);
}

static void close_batch(struct batch *b, EPX_Comm comm)
{
    EPX_Free_mem(b->row_weights, comm);
    EPX_Free_mem(b->rows, comm);
    EPX_Route_free(&b->route);
}

int main(int argc, char **argv)
{
    struct batch batches[BATCHES];
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Info info;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Info_create(&info);
    MPI_Info_set(info, "epx_progress", "thread");
    EPX_Comm_create(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    EPX_Comm_rank(comm, &rank);
    for (int b = 0; b < BATCHES; b++)
        open_batch(&batches[b], b, comm);

    for (int b = 0; b < BATCHES; b++) /* all batches set out */
        send(&batches[b]);
    for (int b = 0; b < BATCHES; b++) {
        compute(&batches[b]); /* later batches still travel */
        bring_home(&batches[b]);
    }
    for (int b = 0; b < BATCHES; b++) {
        EPX_Wait(&batches[b].requests[0], MPI_STATUS_IGNORE);
        printf("rank %d, batch %d, token 1: %.1f %.1f\n", rank, b,
               batches[b].sums[1][0], batches[b].sums[1][1]);
        close_batch(&batches[b], comm);
    }
    EPX_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}

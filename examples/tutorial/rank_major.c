/* SPDX-License-Identifier: BSD-3-Clause */
/* rank_major.c - a row comes once to a rank, for all its experts. */
#include <epx.h>
#include <stdio.h>

enum { TOKENS = 4, CHOICES = 2, HIDDEN = 2, EXPERTS = 8 };

/* Puts the weighted sum of the row's experts in place of each row. */
static int compute(const EPX_Route_view *view, float *rows,
                   const float *row_weights)
{
    int pairs = 0;

    for (int64_t i = 0; i < view->num_rows[0]; i++) {
        float factor = 0;

        for (int64_t k = i * CHOICES; k < (i + 1) * CHOICES; k++) {
            int expert = view->row_expert_ids[k];

            if (expert < 0)
                continue;
            factor += row_weights[k] *
                      (float)(view->first_local_expert + expert);
            pairs++;
        }
        for (int h = 0; h < HIDDEN; h++)
            rows[i * HIDDEN + h] *= factor;
    }
    return pairs;
}

int main(int argc, char **argv)
{
    const int64_t ids[TOKENS][CHOICES] = {
        {0, 3}, {3, 6}, {7, 5}, {2, -1}};
    const float weights[TOKENS][CHOICES] = {
        {.25f, .75f}, {.5f, .5f}, {.5f, .5f}, {1, 0}};
    float tokens[TOKENS][HIDDEN] = {{1, 10}, {2, 20}, {3, 30}, {4, 40}};
    float sums[TOKENS][HIDDEN], *rows, *row_weights;
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Request requests[2] = {EPX_REQUEST_NULL, EPX_REQUEST_NULL};
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Comm comm = EPX_COMM_NULL;
    int rank, pairs;

    MPI_Init(&argc, &argv);
    EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    EPX_Comm_rank(comm, &rank);
    attr.num_experts = EXPERTS;
    attr.top_k = CHOICES;
    attr.max_tokens = TOKENS;
    attr.layout = EPX_RANK_MAJOR;
    EPX_Route_create(&attr, comm, &route);
    EPX_Route_get_view(route, &view);
    EPX_Alloc_mem(view.capacity * (MPI_Aint)sizeof(float) * HIDDEN,
                  comm, &rows);
    EPX_Alloc_mem(view.capacity * (MPI_Aint)sizeof(float) * CHOICES,
                  comm, &row_weights);

    EPX_Route_tokens(ids, TOKENS, route, EPX_STREAM_NULL, &requests[0]);
    EPX_Dispatch(tokens, weights[0], rows, row_weights, HIDDEN,
                 EPX_FLOAT32, route, EPX_STREAM_NULL, &requests[1]);
    EPX_Waitall(2, requests, MPI_STATUSES_IGNORE);
    pairs = compute(&view, rows, row_weights);
    EPX_Combine(rows, NULL, sums, HIDDEN, EPX_FLOAT32, route,
                EPX_STREAM_NULL, &requests[0]);
    EPX_Wait(&requests[0], MPI_STATUS_IGNORE);
    printf("rank %d: %lld rows for %d pairs, room for %lld\n", rank,
           (long long)view.num_rows[0], pairs,
           (long long)view.capacity);
    for (int t = 0; t < TOKENS; t++)
        printf("rank %d, token %d: %.2f %.2f\n", rank, t, sums[t][0],
               sums[t][1]);

    EPX_Free_mem(row_weights, comm);
    EPX_Free_mem(rows, comm);
    EPX_Route_free(&route);
    EPX_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}

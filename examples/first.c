/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank sends 4 tokens to 2 of 8 experts; expert e multiplies by e;
 * weighted sums return. */
#include <epx.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    const int64_t ids[4][2] = {{0, 5}, {3, 6}, {7, 1}, {2, -1}};
    const float weights[4][2] = {{.25, .75}, {.5, .5}, {.5, .5}, {1, 0}};
    float tokens[4][2] = {{1, 10}, {2, 20}, {3, 30}, {4, 40}};
    float sums[4][2], *rows, *row_weights;
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Request requests[2] = {EPX_REQUEST_NULL, EPX_REQUEST_NULL};
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Comm comm = EPX_COMM_NULL;

    MPI_Init(&argc, &argv);
    EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    attr.num_experts = 8;
    attr.top_k = 2;
    attr.max_tokens = 4;
    EPX_Route_create(&attr, comm, &route);
    EPX_Route_get_view(route, &view);
    EPX_Alloc_mem(view.capacity * 2 * sizeof(float), comm, &rows);
    EPX_Alloc_mem(view.capacity * sizeof(float), comm, &row_weights);

    EPX_Route_tokens(ids, 4, route, EPX_STREAM_NULL, &requests[0]);
    EPX_Dispatch(tokens, weights[0], /* from here */
                 rows, row_weights,  /* to here, on the experts' ranks */
                 2, EPX_FLOAT32, route, EPX_STREAM_NULL, &requests[1]);
    EPX_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int e = 0; e < view.num_local_experts; e++) {
        float *slab = rows + view.expert_offsets[e] * 2;

        for (int i = 0; i < view.expert_counts[e] * 2; i++)
            slab[i] *= (float)(view.first_local_expert + e);
    }
    EPX_Combine(rows, row_weights, /* from here */
                sums,              /* to here, on the tokens' ranks */
                2, EPX_FLOAT32, route, EPX_STREAM_NULL, &requests[0]);
    EPX_Wait(&requests[0], MPI_STATUS_IGNORE);
    for (int t = 0; t < 4; t++)
        printf("token %d: %.2f %.2f\n", t, sums[t][0], sums[t][1]);

    EPX_Free_mem(row_weights, comm);
    EPX_Free_mem(rows, comm);
    EPX_Route_free(&route);
    EPX_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}

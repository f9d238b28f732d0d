/* SPDX-License-Identifier: BSD-3-Clause */
/* grouped.c - each expert multiplies its rows by its own matrix. */
#include <epx.h>
#include <stdio.h>

enum {
    TOKENS = 4,
    CHOICES = 2,
    HIDDEN = 2,
    EXPERTS = 4,
    ALIGNMENT = 4
};

/* out = rows times matrix, for the rows from first up to end. */
static void multiply(const float *rows, int64_t first, int64_t end,
                     const float *matrix, float *out)
{
    for (int64_t i = first; i < end; i++)
        for (int h = 0; h < HIDDEN; h++) {
            float sum = 0;

            for (int j = 0; j < HIDDEN; j++)
                sum += rows[i * HIDDEN + j] * matrix[j * HIDDEN + h];
            out[i * HIDDEN + h] = sum;
        }
}

/* A grouped matrix product: group e is the slab of local expert e. */
static void grouped_product(const EPX_Route_view *view, int rank,
                            const float *rows, float *out)
{
    for (int e = 0; e < view->num_local_experts; e++) {
        float number = (float)(view->first_local_expert + e);
        const float matrix[] = {number, 1, 1, number};

        multiply(rows, view->expert_offsets[e], view->expert_ends[e],
                 matrix, out);
        printf("rank %d, expert %d: rows %lld to %d, %d of them used\n",
               rank, view->first_local_expert + e,
               (long long)view->expert_offsets[e],
               view->expert_ends[e] - 1, view->expert_counts[e]);
    }
}

int main(int argc, char **argv)
{
    const int32_t ids[TOKENS][CHOICES] = {
        {0, 1}, {2, 0}, {3, 1}, {0, -1}};
    float tokens[TOKENS][HIDDEN] = {{1, 10}, {2, 20}, {3, 30}, {4, 40}};
    float sums[TOKENS][HIDDEN], *rows, *out;
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Request requests[2] = {EPX_REQUEST_NULL, EPX_REQUEST_NULL};
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Aint bytes;
    int rank;

    MPI_Init(&argc, &argv);
    EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    EPX_Comm_rank(comm, &rank);
    attr.num_experts = EXPERTS;
    attr.top_k = CHOICES;
    attr.max_tokens = TOKENS;
    attr.alignment = ALIGNMENT; /* each slab is a multiple of 4 rows */
    attr.index_bits = 32;       /* ids are int32_t */
    EPX_Route_create(&attr, comm, &route);
    EPX_Route_get_view(route, &view);
    bytes = view.capacity * (MPI_Aint)sizeof(float) * HIDDEN;
    EPX_Alloc_mem(bytes, comm, &rows);
    EPX_Alloc_mem(bytes, comm, &out);

    EPX_Route_tokens(ids, TOKENS, route, EPX_STREAM_NULL, &requests[0]);
    EPX_Dispatch(tokens, NULL, rows, NULL, HIDDEN, EPX_FLOAT32, route,
                 EPX_STREAM_NULL, &requests[1]);
    EPX_Waitall(2, requests, MPI_STATUSES_IGNORE);
    grouped_product(&view, rank, rows, out);
    EPX_Combine(out, NULL, sums, HIDDEN, EPX_FLOAT32, route,
                EPX_STREAM_NULL, &requests[0]);
    EPX_Wait(&requests[0], MPI_STATUS_IGNORE);
    printf("rank %d, token 0: %.0f %.0f\n", rank, sums[0][0],
           sums[0][1]);

    EPX_Free_mem(out, comm);
    EPX_Free_mem(rows, comm);
    EPX_Route_free(&route);
    EPX_Comm_free(&comm);
    MPI_Finalize();
    return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * old_program - a layer forwards and backwards, and an alltoallv, as a program of 0.1.0 has them:
 * check_abi.sh compiles it with the epx.h of 0.1.0. Behind each struct lies a guard, which a
 * library that takes the struct for a longer one would read or write.
 */
#include <epx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 3, TOP_K = 2, EXPERTS = 4, GUARD = 64, GUARD_BYTE = 0xA5 };

static const int64_t ids[TOKENS][TOP_K] = {{0, 2}, {2, 3}, {1, -1}};
static const float weights[TOKENS][TOP_K] = {{.75, .25}, {.5, .5}, {1, 0}};

static struct {
    EPX_Route_attr attr;
    unsigned char after_attr[GUARD];
    EPX_Route_view view;
    unsigned char after_view[GUARD];
    EPX_Stats stats;
    unsigned char after_stats[GUARD];
} s;
static EPX_Comm comm;
static EPX_Route route;
static EPX_Request request;
static int rank, ranks, failures;
static float *rows, *row_weights, *outputs, *grad_outputs, *grad_rows, *grad_row_weights;

static void expect(int condition, const char *what)
{
    if (condition)
        return;
    failures++;
    fprintf(stderr, "rank %d: not so: %s\n", rank, what);
}

static void check(int code, const char *what)
{
    expect(code == EPX_SUCCESS, what);
}

static void expect_guard(const unsigned char *guard, const char *what)
{
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != GUARD_BYTE) {
            expect(0, what);
            return;
        }
}

static void complete(const char *what)
{
    check(EPX_Wait(&request, MPI_STATUS_IGNORE), what);
}

static float *new_floats(int64_t count)
{
    float *floats = calloc((size_t)count, sizeof(float));

    if (!floats)
        abort();
    return floats;
}

static void open_all(void)
{
    const EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    const EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    const EPX_Stats stats = EPX_STATS_INIT;

    memset(&s, GUARD_BYTE, sizeof(s));
    s.attr = attr;
    s.view = view;
    s.stats = stats;
    check(EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm), "EPX_Comm_create");
    check(EPX_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "EPX_Comm_set_errhandler");
    check(EPX_Comm_rank(comm, &rank), "EPX_Comm_rank");
    check(EPX_Comm_size(comm, &ranks), "EPX_Comm_size");
    s.attr.num_experts = EXPERTS;
    s.attr.top_k = TOP_K;
    s.attr.max_tokens = TOKENS;
    check(EPX_Route_create(&s.attr, comm, &route), "EPX_Route_create");
    check(EPX_Route_get_view(route, &s.view), "EPX_Route_get_view");
    expect(s.view.size == sizeof(EPX_Route_view), "the view keeps its size");
    expect(s.view.capacity == ranks * TOKENS * TOP_K, "capacity");
    expect_guard(s.after_attr, "nothing is written behind the attributes");
    expect_guard(s.after_view, "nothing is written behind the view");
    check(EPX_Alloc_mem(s.view.capacity * (MPI_Aint)sizeof(float), comm, &rows), "EPX_Alloc_mem");
    row_weights = new_floats(s.view.capacity);
    outputs = new_floats(s.view.capacity);
    grad_outputs = new_floats(s.view.capacity);
    grad_rows = new_floats(s.view.capacity);
    grad_row_weights = new_floats(s.view.capacity);
}

/* Expert e multiplies by e + 1, as its gradient does. */
static void apply_experts(const float *in, float *out)
{
    for (int e = 0; e < s.view.num_local_experts; e++)
        for (int64_t row = s.view.expert_offsets[e]; row < s.view.expert_offsets[e + 1]; row++)
            out[row] = (float)(s.view.first_local_expert + e + 1) * in[row];
}

static float factor(int token, int choice)
{
    return (float)(ids[token][choice] + 1);
}

static void go_forwards(const float *x)
{
    float sums[TOKENS];

    check(EPX_Route_tokens(ids, TOKENS, route, EPX_STREAM_NULL, &request), "EPX_Route_tokens");
    complete("routing");
    check(EPX_Dispatch(x, weights[0], rows, row_weights, 1, EPX_FLOAT32, route, EPX_STREAM_NULL,
                       &request),
          "EPX_Dispatch");
    complete("dispatch");
    apply_experts(rows, outputs);
    check(EPX_Combine(outputs, row_weights, sums, 1, EPX_FLOAT32, route, EPX_STREAM_NULL, &request),
          "EPX_Combine");
    complete("combine");
    for (int t = 0; t < TOKENS; t++) {
        float wanted = 0;
        for (int k = 0; k < TOP_K; k++)
            wanted += weights[t][k] * factor(t, k) * x[t];
        expect(sums[t] == wanted, "sums of combine");
    }
}

static void go_backwards(const float *x)
{
    const float grad[TOKENS] = {1, 2, -1};
    float grad_x[TOKENS], grad_weights[TOKENS][TOP_K];

    check(EPX_Combine_backward(grad, outputs, row_weights, grad_outputs, grad_row_weights, 1,
                               EPX_FLOAT32, route, EPX_STREAM_NULL, &request),
          "EPX_Combine_backward");
    complete("combine backward");
    apply_experts(grad_outputs, grad_rows);
    check(EPX_Dispatch_backward(grad_rows, grad_row_weights, grad_x, grad_weights[0], 1,
                                EPX_FLOAT32, route, EPX_STREAM_NULL, &request),
          "EPX_Dispatch_backward");
    complete("dispatch backward");
    for (int t = 0; t < TOKENS; t++) {
        float wanted = 0;
        for (int k = 0; k < TOP_K; k++) {
            wanted += grad[t] * weights[t][k] * factor(t, k);
            expect(grad_weights[t][k] == grad[t] * factor(t, k) * x[t], "gradients of weights");
        }
        expect(grad_x[t] == wanted, "gradients of tokens");
    }
}

/* Each rank sends its number to each rank. */
static void exchange(void)
{
    int64_t *counts = calloc((size_t)ranks * 4, sizeof(int64_t));
    int64_t *displs = counts + ranks, *recvcounts = displs + ranks, *rdispls = recvcounts + ranks;
    float *sent = new_floats(ranks), *received = new_floats(ranks);

    if (!counts)
        abort();
    for (int r = 0; r < ranks; r++) {
        counts[r] = 1;
        displs[r] = r;
        sent[r] = (float)rank;
    }
    check(EPX_Alltoallv(sent, counts, displs, received, recvcounts, rdispls, ranks, 1, EPX_FLOAT32,
                        comm, EPX_STREAM_NULL, &request),
          "EPX_Alltoallv");
    complete("alltoallv");
    for (int r = 0; r < ranks; r++)
        expect(recvcounts[r] == 1 && rdispls[r] == r && received[r] == (float)r, "alltoallv");
    free(received);
    free(sent);
    free(counts);
}

static void close_all(void)
{
    check(EPX_Comm_get_stats(comm, &s.stats), "EPX_Comm_get_stats");
    expect(s.stats.size == sizeof(EPX_Stats) && s.stats.calls == 6, "statistics");
    expect_guard(s.after_view, "nothing is written behind the view later");
    expect_guard(s.after_stats, "nothing is written behind the statistics");
    free(grad_row_weights);
    free(grad_rows);
    free(grad_outputs);
    free(outputs);
    free(row_weights);
    check(EPX_Free_mem(rows, comm), "EPX_Free_mem");
    check(EPX_Route_free(&route), "EPX_Route_free");
    check(EPX_Comm_free(&comm), "EPX_Comm_free");
}

int main(int argc, char **argv)
{
    float x[TOKENS];
    int major, minor, patch;

    MPI_Init(&argc, &argv);
    check(EPX_Get_version(&major, &minor, &patch), "EPX_Get_version");
    expect(major > EPX_VERSION_MAJOR || minor > EPX_VERSION_MINOR, "the library is a newer one");
    open_all();
    for (int t = 0; t < TOKENS; t++)
        x[t] = (float)(10 * (rank + 1) + t);
    go_forwards(x);
    go_backwards(x);
    exchange();
    close_all();
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0 && failures == 0)
        printf(" No Errors\n");
    return failures > 0;
}

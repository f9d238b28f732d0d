/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trouble.c - makes the errors that epx_trouble(7) shows, on 2 ranks. The library tells each on
 * standard error; check_trouble.sh compares that with the page.
 */
#include <epx.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 4, CHOICES = 2, HIDDEN = 2, EXPERTS = 8 };

static EPX_Comm comm;
static EPX_Route route;
static EPX_Request request;
static int rank;
static int64_t ids[TOKENS][CHOICES];
static float tokens[TOKENS][HIDDEN], rows[64][HIDDEN], sums[TOKENS][HIDDEN];
static float weights[TOKENS * CHOICES];

/* Makes a communicator with a hint, unless that is NULL. */
static int create(const char *hint, const char *value)
{
    MPI_Info info;
    int error;

    if (!hint)
        return EPX_Comm_create(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
    MPI_Info_create(&info);
    MPI_Info_set(info, hint, value);
    error = EPX_Comm_create(MPI_COMM_WORLD, info, &comm);
    MPI_Info_free(&info);
    return error;
}

static void try_hint(const char *hint, const char *value)
{
    if (create(hint, value) == EPX_SUCCESS)
        EPX_Comm_free(&comm);
}

static void hints(void)
{
    try_hint("epx_timeout_ms", "soon");
    try_hint("epx_transport", "tcp");
    try_hint("epx_timeout", "1000");
    try_hint("epx_timeout_ms", rank ? "2000" : "1000");
}

static EPX_Route_attr attributes(void)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = EXPERTS;
    attr.top_k = CHOICES;
    attr.max_tokens = TOKENS;
    attr.max_row_bytes = sizeof(rows[0]);
    return attr;
}

static void try_route(EPX_Route_attr attr)
{
    if (EPX_Route_create(&attr, comm, &route) == EPX_SUCCESS)
        EPX_Route_free(&route);
}

static void routes(void)
{
    EPX_Route_attr attr = attributes();

    attr.max_tokens = 0;
    try_route(attr);
    attr = attributes();
    attr.top_k = rank ? 2 : 1;
    try_route(attr);
    attr = attributes();
    attr.max_tokens = 1 << 30;
    try_route(attr);
    attr.top_k = 64;
    attr.max_tokens = INT_MAX;
    attr.recv_capacity = 1;
    try_route(attr);
    attr = attributes();
    attr.size = 0;
    try_route(attr);
}

static int route_tokens(void)
{
    int error = EPX_Route_tokens(ids, TOKENS, route, EPX_STREAM_NULL, &request);

    return error ? error : EPX_Wait(&request, MPI_STATUS_IGNORE);
}

static int dispatch(const void *from, const float *w, void *to, int count, EPX_Datatype type)
{
    int error = EPX_Dispatch(from, w, to, NULL, count, type, route, EPX_STREAM_NULL, &request);

    return error ? error : EPX_Wait(&request, MPI_STATUS_IGNORE);
}

static void buffers(void)
{
    dispatch(tokens, NULL, rows, HIDDEN, EPX_FLOAT32);
    route_tokens();
    EPX_Route_tokens(ids, TOKENS + 1, route, EPX_STREAM_NULL, &request);
    dispatch(tokens, NULL, NULL, HIDDEN, EPX_FLOAT32);
    dispatch(MPI_IN_PLACE, NULL, rows, HIDDEN, EPX_FLOAT32);
    dispatch(tokens, NULL, tokens, HIDDEN, EPX_FLOAT32);
    dispatch(tokens, NULL, rows, HIDDEN + 1, EPX_FLOAT32);
    dispatch(tokens, NULL, rows, HIDDEN, 99);
    dispatch((const char *)tokens + 1, NULL, rows, HIDDEN, EPX_FLOAT32);
    EPX_Combine(rows, NULL, sums, HIDDEN, EPX_BYTE, route, EPX_STREAM_NULL, &request);
}

/* What one rank does and another does not. */
static void differences(void)
{
    dispatch(tokens, NULL, rows, rank ? 1 : 2, EPX_FLOAT32);
    dispatch(tokens, rank ? weights : NULL, rows, HIDDEN, EPX_FLOAT32);
    if (rank)
        EPX_Combine(rows, NULL, sums, HIDDEN, EPX_FLOAT32, route, EPX_STREAM_NULL, &request);
    else
        EPX_Dispatch(tokens, NULL, rows, NULL, HIDDEN, EPX_FLOAT32, route, EPX_STREAM_NULL,
                     &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
}

static void expert_ids(void)
{
    ids[3][1] = EXPERTS;
    route_tokens();
    ids[3][1] = 0;
}

static void overflow(void)
{
    EPX_Route_attr attr = attributes();
    EPX_Route usual = route;

    attr.recv_capacity = 4;
    EPX_Route_create(&attr, comm, &route);
    route_tokens();
    dispatch(tokens, NULL, rows, HIDDEN, EPX_FLOAT32);
    EPX_Route_free(&route);
    attr.recv_capacity = 0;
    attr.layout = EPX_EXPERT_SLAB;
    attr.rows_per_expert = 4;
    EPX_Route_create(&attr, comm, &route);
    route_tokens();
    EPX_Route_free(&route);
    route = usual;
}

static void exchange(void)
{
    int64_t counts[2] = {1, 1}, displs[2] = {0, 1}, in[2], in_displs[2];
    int64_t negative[2] = {-1, 1};

    EPX_Alltoallv(tokens, counts, displs, rows, in, in_displs, 1, HIDDEN, EPX_FLOAT32, comm,
                  EPX_STREAM_NULL, &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
    EPX_Alltoallv(tokens, negative, displs, rows, in, in_displs, 4, HIDDEN, EPX_FLOAT32, comm,
                  EPX_STREAM_NULL, &request);
}

static void handles(void)
{
    EPX_Route freed = route;
    EPX_Comm none = EPX_COMM_NULL;

    EPX_Comm_rank(none, &rank);
    EPX_Free_mem(rows, comm);
    EPX_Comm_free(&comm);
    EPX_Route_free(&route);
    EPX_Route_free(&freed);
}

static void usual(void)
{
    EPX_Route_attr attr = attributes();

    create(NULL, NULL);
    routes();
    EPX_Route_create(&attr, comm, &route);
    buffers();
    differences();
    expert_ids();
    overflow();
    exchange();
    handles();
    EPX_Comm_free(&comm);
}

/* Rank 1 comes too late for rank 0. */
static void late(void)
{
    EPX_Route_attr attr = attributes();

    create("epx_timeout_ms", "2000");
    EPX_Route_create(&attr, comm, &route);
    if (rank)
        sleep(6);
    route_tokens();
    dispatch(tokens, NULL, rows, HIDDEN, EPX_FLOAT32);
    EPX_Route_free(&route);
    EPX_Comm_free(&comm);
}

static void leftovers(void)
{
    EPX_Route_attr attr = attributes();
    EPX_Request persistent;
    int64_t numbers[6] = {0};

    create(NULL, NULL);
    EPX_Route_create(&attr, comm, &route);
    EPX_Route_tokens(ids, TOKENS, route, EPX_STREAM_NULL, &request);
    EPX_Route_free(&route);
    EPX_Alltoallv_init(NULL, numbers, numbers, NULL, numbers + 2, numbers + 4, 0, 1, EPX_BYTE, comm,
                       EPX_STREAM_NULL, 0, &persistent);
    EPX_Comm_free(&comm);
    create(NULL, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void transport(void)
{
    try_hint(NULL, NULL);
}

/* An error as a program meets it that asks for nothing. */
static void fatal(void)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    try_hint("epx_timeout_ms", "soon");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"hints", hints},         {"usual", usual},         {"late", late},
                 {"leftovers", leftovers}, {"transport", transport}, {"fatal", fatal}};

    if (argc > 1 && strcmp(argv[1], "hints") == 0)
        create(NULL, NULL); /* before MPI_Init */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0)
            cases[i].run();
    MPI_Finalize();
    return 0;
}

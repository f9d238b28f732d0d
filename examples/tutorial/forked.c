/* SPDX-License-Identifier: BSD-3-Clause */
/* forked.c - ranks that fork starts: no MPI. */
#include <epx.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, WIDTH = 4 };

/* Pipes from each rank to the next one, the last one's to rank 0. */
struct ring {
    int rank;
    FILE *in, *out;
};

/* What EPX calls: every rank passes on what it has, step by step. */
static int allgather(const void *own, void *all, size_t bytes,
                     void *arg)
{
    struct ring *ring = arg;
    char *rows = all;
    int from = ring->rank;

    memcpy(rows + (size_t)from * bytes, own, bytes);
    for (int step = 1; step < RANKS; step++) {
        fwrite(rows + (size_t)from * bytes, 1, bytes, ring->out);
        fflush(ring->out);
        from = (from + RANKS - 1) % RANKS;
        if (fread(rows + (size_t)from * bytes, 1, bytes, ring->in) !=
            bytes)
            return 1; /* the rank before this one has ended */
    }
    return 0;
}

/* One expert a rank; the token is for the expert of the next rank. */
static void send_token(EPX_Comm comm, int rank)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Route route;
    EPX_Request request;
    int64_t expert = (rank + 1) % RANKS;
    float token[WIDTH] = {(float)rank}, row[RANKS][WIDTH];

    attr.num_experts = RANKS;
    attr.top_k = 1;
    attr.max_tokens = 1;
    EPX_Route_create(&attr, comm, &route);
    EPX_Route_get_view(route, &view);
    EPX_Route_dispatch(&expert, 1, token, NULL, row, NULL, WIDTH,
                       EPX_FLOAT32, route, EPX_STREAM_NULL, &request);
    EPX_Wait(&request, MPI_STATUS_IGNORE);
    printf("rank %d: %lld token, of rank %.0f\n", rank,
           (long long)*view.num_rows, row[0][0]);
    EPX_Route_free(&route);
}

static int run_rank(struct ring *ring)
{
    const char *const hints[] = {"epx_timeout_ms=60000", NULL};
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;
    EPX_Comm comm;

    bootstrap.rank = ring->rank;
    bootstrap.num_ranks = RANKS;
    bootstrap.allgather = allgather;
    bootstrap.arg = ring;
    if (EPX_Comm_create_from(&bootstrap, hints, &comm) != EPX_SUCCESS)
        return 1;
    send_token(comm, ring->rank);
    return EPX_Comm_free(&comm) != EPX_SUCCESS;
}

int main(void)
{
    int fd[RANKS][2], status, failed = 0;

    for (int r = 0; r < RANKS; r++)
        if (pipe(fd[r]) != 0)
            return 1;
    for (int r = 0; r < RANKS; r++)
        if (fork() == 0) {
            int before = (r + RANKS - 1) % RANKS;
            struct ring ring = {r, fdopen(fd[before][0], "r"),
                                fdopen(fd[r][1], "w")};

            return run_rank(&ring);
        }
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}

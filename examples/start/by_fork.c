/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * by_fork.c - ranks without MPI: a process forks them, and is the hub by which they gather for the
 * first contact, over pairs of sockets. Each rank sends its number to all others.
 *
 *   cc by_fork.c $(pkg-config --cflags --libs epx) -o by_fork && ./by_fork 4
 */
#include <epx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 64 };

/* This rank's end of the line to the hub. */
struct line {
    int fd, size;
};

/* Returns 1 if all bytes went, or came. */
static int write_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);

        if (n <= 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

static int read_all(int fd, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, (char *)data + done, bytes - done);

        if (n <= 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

/* What EPX calls: every rank gives `bytes` bytes, and gets those of all. */
static int allgather(const void *own, void *all, size_t bytes, void *arg)
{
    const struct line *line = arg;

    return !write_all(line->fd, &bytes, sizeof(bytes)) || !write_all(line->fd, own, bytes) ||
           !read_all(line->fd, all, bytes * (size_t)line->size);
}

/* Serves one allgather after the other until a rank hangs up. */
static void be_hub(const int *fds, int size)
{
    for (;;) {
        size_t bytes = 0;
        char *all = NULL;

        for (int r = 0; r < size; r++) {
            if (!read_all(fds[r], &bytes, sizeof(bytes)) ||
                (!all && !(all = malloc(bytes * (size_t)size))) ||
                !read_all(fds[r], all + (size_t)r * bytes, bytes)) {
                free(all);
                return;
            }
        }
        for (int r = 0; r < size; r++)
            write_all(fds[r], all, bytes * (size_t)size);
        free(all);
    }
}

static int greet_all(EPX_Comm comm, int rank, int size)
{
    int64_t ones[MAX_RANKS], zeros[MAX_RANKS] = {0}, counts[MAX_RANKS], places[MAX_RANKS];
    float number = (float)rank, numbers[MAX_RANKS], sum = 0;
    EPX_Request request;

    for (int r = 0; r < size; r++)
        ones[r] = 1;
    if (EPX_Alltoallv(&number, ones, zeros, numbers, counts, places, size, 1, EPX_FLOAT32, comm,
                      EPX_STREAM_NULL, &request) ||
        EPX_Wait(&request, MPI_STATUS_IGNORE))
        return 1;
    for (int r = 0; r < size; r++)
        sum += numbers[r];
    printf("rank %d of %d: the numbers of all ranks sum to %g\n", rank, size, (double)sum);
    return 0;
}

static int run_rank(struct line line, int rank)
{
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;
    EPX_Comm comm;
    int failed;

    bootstrap.rank = rank;
    bootstrap.num_ranks = line.size;
    bootstrap.allgather = allgather;
    bootstrap.arg = &line;
    if (EPX_Comm_create_from(&bootstrap, NULL, &comm))
        return 1;
    failed = greet_all(comm, rank, line.size);
    return EPX_Comm_free(&comm) || failed;
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? atoi(argv[1]) : 4, fds[MAX_RANKS], failed = 0, status;

    if (size < 1 || size > MAX_RANKS)
        return fprintf(stderr, "usage: by_fork [1 to %d ranks]\n", MAX_RANKS), 2;
    for (int r = 0; r < size; r++) {
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
            return perror("socketpair"), 1;
        if (fork() == 0)
            return run_rank((struct line){pair[0], size}, r);
        close(pair[0]);
        fds[r] = pair[1];
    }
    be_hub(fds, size);
    for (int r = 0; r < size; r++)
        close(fds[r]);
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* scenes.c - scenes that ranks play without MPI. */
#include "control/scenes.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct board *scene_boards[2];
const struct scene_memory *scene_memory;
int scene_patience_ms = TIMEOUT_MS;
static const char *claim;

int scene_complain(int rank, const char *format, ...)
{
    char text[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    fprintf(stderr, "%s, rank %d: %s\n", claim, rank, text);
    atomic_fetch_add(&scene_boards[0]->errors, 1);
    return 0;
}

double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

void nap_ms(long ms)
{
    const struct timespec nap = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&nap, NULL);
}

static int barrier(struct group *group)
{
    struct board *board = group->board;
    const int round = atomic_load(&board->round);
    const double end = now_ms() + scene_patience_ms;

    if (atomic_fetch_add(&board->came, 1) == group->size - 1) {
        atomic_store(&board->came, 0);
        atomic_store(&board->round, round + 1);
        return 0;
    }
    while (atomic_load(&board->round) == round) {
        if (now_ms() > end)
            return 1;
        nap_ms(1);
    }
    return 0;
}

int has_fault(const struct group *group, const char *fault)
{
    return strcmp(group->fault, fault) == 0;
}

int scene_gather(const void *own, void *all, size_t bytes, struct group *group)
{
    if (bytes > MOST_BYTES)
        return 2;
    memcpy(group->board->bytes[group->rank], own, bytes);
    if (barrier(group))
        return 1;
    for (int r = 0; r < group->size; r++)
        memcpy((char *)all + (size_t)r * bytes, group->board->bytes[r], bytes);
    if (barrier(group))
        return 1;
    group->calls++;
    return 0;
}

int scene_create(struct group *group,
                 int (*allgather)(const void *own, void *all, size_t bytes, void *arg),
                 const char *const hints[], EPX_Comm *comm)
{
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;

    bootstrap.rank = group->rank;
    bootstrap.num_ranks = group->size;
    bootstrap.allgather = allgather;
    bootstrap.arg = group;
    return EPX_Comm_create_from(&bootstrap, hints, comm);
}

/* What an exchange uses. */
struct rows {
    int64_t counts[4][MAX_RANKS];
    int32_t sent[MAX_RANKS], received[MAX_RANKS];
};

static void fill(const struct group *group, struct rows *rows)
{
    for (int r = 0; r < group->size; r++) {
        rows->counts[0][r] = 1;
        rows->counts[1][r] = r;
        rows->sent[r] = group->rank * MAX_RANKS + r;
        rows->received[r] = -1;
    }
}

static void compare(const struct group *group, const struct rows *rows)
{
    for (int r = 0; r < group->size; r++)
        EXPECT(group, rows->received[r] == r * MAX_RANKS + group->rank, "%d from rank %d",
               rows->received[r], r);
}

int scene_exchange(const struct group *group, EPX_Comm comm, MPI_Status *status)
{
    struct rows rows, *at = &rows;
    EPX_Request request;
    int rc;

    fill(group, &rows);
    if (scene_memory)
        at = scene_memory->put(&rows, sizeof(rows));
    rc = EPX_Alltoallv(at->sent, at->counts[0], at->counts[1], at->received, at->counts[2],
                       at->counts[3], MAX_RANKS, 1, EPX_FLOAT32, comm, EPX_STREAM_NULL, &request);
    if (rc == EPX_SUCCESS && scene_memory && scene_memory->await)
        scene_memory->await();
    if (rc == EPX_SUCCESS)
        rc = EPX_Wait(&request, status);
    if (rc != EPX_SUCCESS)
        return rc;
    if (scene_memory)
        scene_memory->get(&rows, sizeof(rows));
    compare(group, &rows);
    return rc;
}

static pid_t start_rank(const struct scene *scene, int rank)
{
    const int first = scene->size - (scene->falls > 1 ? scene->falls : 1);
    struct group group = {
        scene_boards[0], rank, scene->size, 0, rank >= first ? scene->fault : "", scene};
    pid_t process = fork();

    if (process)
        return process;
    scene->run(&group);
    fflush(NULL);
    _exit(0);
}

/* Waits for the ranks; one that stopped is ended when the others have ended. */
static void run(const struct scene *scene)
{
    pid_t ranks[MAX_RANKS];
    int status;

    claim = scene->claim;
    for (int b = 0; b < 2; b++) {
        atomic_store(&scene_boards[b]->came, 0);
        atomic_store(&scene_boards[b]->round, 0);
    }
    for (int r = 0; r < scene->size; r++)
        ranks[r] = start_rank(scene, r);
    for (int r = 0; r < scene->size; r++) {
        const int falls = r >= scene->size - scene->falls;

        if (falls)
            kill(ranks[r], SIGKILL);
        waitpid(ranks[r], &status, 0);
        if (!falls && status)
            scene_complain(r, "ended with status %d", status);
    }
}

static struct board *new_board(void)
{
    void *board =
        mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return board == MAP_FAILED ? NULL : board;
}

int scene_play(const struct scene *scenes, int num, const char *text)
{
    int errors;

    scene_boards[0] = new_board();
    scene_boards[1] = new_board();
    if (!scene_boards[0] || !scene_boards[1])
        return EXIT_FAILURE;
    for (int i = 0; i < num; i++)
        if (!text || strstr(scenes[i].claim, text)) {
            run(&scenes[i]);
            printf("ran: %s\n", scenes[i].claim);
            fflush(stdout); /* or what the next ranks inherit is printed again */
        }
    errors = atomic_load(&scene_boards[0]->errors);
    if (errors)
        printf(" Found %d errors\n", errors);
    else
        printf(" No Errors\n");
    return errors ? EXIT_FAILURE : EXIT_SUCCESS;
}

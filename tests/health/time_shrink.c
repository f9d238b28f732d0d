/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * time_shrink.c - how long it takes from the moment at which a rank is killed until those that live
 * have completed an operation on the communicator that they shrank to.
 *
 * usage: time_shrink [KILLS [RANKS]], 100 and 8 if not given; EPX_TRANSPORT as ever; with
 * EPX_MEMORY=cuda:device the rows are in the memory of GPUs
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/scenes.h"
#include "health/scene_space.h"

enum { MOST_KILLS = 10000 };

static int kills = 100, ranks = 8, on_gpu;
static struct {
    _Atomic int working; /* ranks that work */
    double killed_ms[MOST_KILLS];
    double through_ms[MAX_RANKS][MOST_KILLS], noticed_ms[MAX_RANKS][MOST_KILLS];
} * shared;

static int gather(const void *own, void *all, size_t bytes, void *group)
{
    return scene_gather(own, all, bytes, group);
}

static EPX_Comm make(struct group *group)
{
    static const char *const hints[] = {"epx_log=warn", NULL};
    EPX_Comm comm = EPX_COMM_NULL;
    static int entered;

    if (on_gpu && !entered++)
        space_take(group->rank);
    EXPECT(group, scene_create(group, gather, hints, &comm) == EPX_SUCCESS);
    return comm;
}

/* Works until the communicator has ended. */
static void work(const struct group *group, EPX_Comm comm)
{
    int rc, counted = 0;

    do {
        rc = scene_exchange(group, comm, MPI_STATUS_IGNORE);
        if (!counted++)
            atomic_fetch_add(&shared->working, 1);
    } while (rc == EPX_SUCCESS);
}

/* In each round a child plays the last rank. */
static void play_last(struct group *group)
{
    for (int i = 0; i < kills; i++) {
        pid_t child;

        fflush(NULL);
        child = fork();
        if (child == 0) {
            work(group, make(group));
            pause();
        }
        while (atomic_load(&shared->working) < ranks)
            nap_ms(1);
        nap_ms(5);
        atomic_store(&shared->working, 0);
        shared->killed_ms[i] = now_ms();
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

static void play(struct group *group)
{
    struct group smaller = *group;

    smaller.size = group->size - 1;
    if (group->rank == group->size - 1) {
        play_last(group);
        return;
    }
    for (int i = 0; i < kills; i++) {
        EPX_Comm old = make(group), comm = EPX_COMM_NULL;

        work(group, old);
        shared->noticed_ms[group->rank][i] = now_ms();
        EXPECT(group, EPX_Comm_shrink(old, &comm) == EPX_SUCCESS);
        EXPECT(group, scene_exchange(&smaller, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS);
        shared->through_ms[group->rank][i] = now_ms();
        EXPECT(group, EPX_Comm_free(&old) == EPX_SUCCESS);
        EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The latest rank counts. */
static void print(const char *what, double (*times)[MOST_KILLS])
{
    static double all[MOST_KILLS];

    for (int i = 0; i < kills; i++) {
        all[i] = 0;
        for (int r = 0; r < ranks - 1; r++)
            if (times[r][i] - shared->killed_ms[i] > all[i])
                all[i] = times[r][i] - shared->killed_ms[i];
    }
    qsort(all, (size_t)kills, sizeof(all[0]), compare);
    printf("%-34s %8.1f %8.1f %8.1f %8.1f\n", what, all[0], all[kills / 2], all[kills * 9 / 10],
           all[kills - 1]);
}

int main(int argc, char **argv)
{
    struct scene scene = {"time_shrink", 0, play, "", 0, 0};
    int rc;

    kills = argc > 1 ? atoi(argv[1]) : kills;
    ranks = argc > 2 ? atoi(argv[2]) : ranks;
    if (kills < 1 || kills > MOST_KILLS || ranks < 2 || ranks > MAX_RANKS) {
        fprintf(stderr, "usage: time_shrink [KILLS [RANKS]]\n");
        return 2;
    }
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return EXIT_FAILURE;
    on_gpu = space_of_scenes();
    if (on_gpu < 0)
        return 77;
    scene.size = ranks;
    rc = scene_play(&scene, 1, NULL);
    printf("%d kills, %d ranks, ms since SIGKILL    least   median      90%%     most\n", kills,
           ranks);
    print("all have noticed it", shared->noticed_ms);
    print("all have completed an operation", shared->through_ms);
    return rc;
}

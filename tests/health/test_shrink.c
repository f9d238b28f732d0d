/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_shrink.c - ranks die or stop in an operation, in the creation of a route or in the shrink
 * itself; those that live go on in one communicator, and nothing of the old one is left.
 *
 * usage: test_shrink [TEXT], or with SCENE=TEXT: the scenes whose claims have the text
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/scenes.h"
#include "health/scene_space.h"

enum {
    WINDOW_BYTES = 1 << 20,
    BOUND_MS = 5000,
    ATTEMPTS = 4,
    OPERATIONS = 1000000,
    EDGES = 100,
    SLACK_KB = 16384
};

/* What the ranks of a scene share beside the board. */
static struct {
    _Atomic int stopped; /* the process that stopped, 0 = none has */
    _Atomic int woken;   /* it is through */
} * shared;

static const char *transport = "epx_transport=auto";
static int on_gpu;

static int is_last(const struct group *group)
{
    return group->rank >= group->size - (group->scene->falls > 1 ? group->scene->falls : 1);
}

static int gather(const void *own, void *all, size_t bytes, void *group)
{
    return scene_gather(own, all, bytes, group);
}

static int blow;

static void strike(int signal)
{
    (void)signal;
    if (blow == SIGSTOP)
        atomic_store(&shared->stopped, getpid());
    raise(blow);
}

/* The signal comes so many microseconds later, whatever this rank does then. */
static void expect_blow(int signal, int us)
{
    const struct itimerval timer = {{0, 0}, {us / 1000000, us % 1000000 + 1}};

    blow = signal;
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = strike, .sa_flags = SA_RESTART}, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* What a rank has of the communicator that ends. */
struct old {
    EPX_Comm comm;
    EPX_Route route;
    char *memory;
};

static int make_route(EPX_Comm comm, EPX_Route *route)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;

    attr.num_experts = 8;
    attr.top_k = 2;
    attr.max_tokens = 64;
    attr.max_row_bytes = 256;
    return EPX_Route_create(&attr, comm, route);
}

/* Once a process. */
static void enter_space(const struct group *group)
{
    static int entered;

    if (on_gpu && !entered++)
        space_take(group->rank);
}

static void make_old(struct group *group, struct old *old)
{
    const char *const hints[] = {"epx_timeout_ms=5000", "epx_log=error", transport, NULL};

    enter_space(group);
    EXPECT(group, scene_create(group, gather, hints, &old->comm) == EPX_SUCCESS);
    EXPECT(group, EPX_Alloc_mem(WINDOW_BYTES, old->comm, &old->memory) == EPX_SUCCESS);
    EXPECT(group, make_route(old->comm, &old->route) == EPX_SUCCESS);
    space_fill(old->memory, group->rank + 1, WINDOW_BYTES);
}

static void free_old(struct group *group, struct old *old)
{
    const long other = space_find_other(old->memory, group->rank + 1, WINDOW_BYTES);

    EXPECT(group, other < 0, "byte %ld of the memory has changed", other);
    EXPECT(group, EPX_Route_free(&old->route) == EPX_SUCCESS);
    EXPECT(group, EPX_Free_mem(old->memory, old->comm) == EPX_SUCCESS);
    EXPECT(group, EPX_Comm_free(&old->comm) == EPX_SUCCESS);
}

/* Goes on until the communicator has ended. */
static int work(struct group *group, struct old *old)
{
    int rc = EPX_SUCCESS;

    for (int i = 0; i < OPERATIONS && rc == EPX_SUCCESS; i++) {
        EPX_Route route = EPX_ROUTE_NULL;

        rc = scene_exchange(group, old->comm, MPI_STATUS_IGNORE);
        if (rc == EPX_SUCCESS && strcmp(group->scene->fault, "route") == 0)
            rc = make_route(old->comm, &route);
        if (route != EPX_ROUTE_NULL)
            EPX_Route_free(&route);
    }
    return rc;
}

/* Ranks that die meanwhile may make it an error, which all get; then it is called again. */
static int shrink(struct group *group, EPX_Comm old, EPX_Comm *comm)
{
    double begun;
    int rc;

    for (int i = 0; i < ATTEMPTS; i++) {
        begun = now_ms();
        rc = EPX_Comm_shrink(old, comm);
        EXPECT(group, now_ms() - begun < 2 * BOUND_MS + SOON_MS, "after %.0f ms", now_ms() - begun);
        if (rc != EPX_ERR_TIMEOUT)
            break;
    }
    return rc;
}

static void use_new(struct group *group, EPX_Comm comm, int survivors)
{
    struct group smaller = *group;
    int ranks[MAX_RANKS], size;

    EXPECT(group, EPX_Comm_size(comm, &size) == EPX_SUCCESS && size == survivors, "%d ranks", size);
    EXPECT(group, EPX_Comm_get_ranks(comm, ranks) == EPX_SUCCESS);
    for (int r = 0; r < size; r++)
        EXPECT(group, ranks[r] == r, "rank %d was %d", r, ranks[r]);
    smaller.size = size;
    for (int i = 0; i < 20; i++)
        EXPECT(group, scene_exchange(&smaller, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS);
}

/* The ranks that fall die so many microseconds after they began to work, or to shrink. */
static void survivors_go_on(struct group *group)
{
    const int falls = group->scene->falls, first = group->size - falls;
    const int in_shrink = strstr(group->scene->claim, "shrink") != NULL;
    struct old old;
    EPX_Comm comm = EPX_COMM_NULL;
    int rc;

    make_old(group, &old);
    if (group->rank >= first && (!in_shrink || group->rank > first))
        expect_blow(SIGKILL, in_shrink ? 1 : group->scene->number);
    rc = work(group, &old);
    EXPECT(group, rc == EPX_ERR_TIMEOUT, "error %d", rc);
    if (group->rank == first)
        expect_blow(SIGKILL, group->scene->number);
    rc = shrink(group, old.comm, &comm);
    if (group->rank >= first)
        for (;;) /* it dies now, in a communicator that others may have, or not */
            pause();
    if (!EXPECT(group, rc == EPX_SUCCESS, "error %d", rc))
        return;
    if (in_shrink) { /* the rank may have died behind it */
        int size;

        EPX_Comm_size(comm, &size);
        if (size > first) {
            EPX_Comm next = EPX_COMM_NULL;

            while (scene_exchange(
                       &(struct group){group->board, group->rank, size, 0, "", group->scene}, comm,
                       MPI_STATUS_IGNORE) == EPX_SUCCESS)
                continue;
            EXPECT(group, shrink(group, comm, &next) == EPX_SUCCESS);
            EPX_Comm_free(&comm);
            comm = next;
        }
    }
    use_new(group, comm, first);
    free_old(group, &old);
    use_new(group, comm, first);
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS);
}

/* A host that waits for its GPU asks nobody who lives: the thread of the hint does, and has kernels
 * that wait for a dead rank end. */
static void a_thread_looks_after_kernels(struct group *group)
{
    const char *const hints[] = {"epx_timeout_ms=60000",  "epx_log=error", "epx_progress=thread",
                                 "epx_split_phases=none", transport,       NULL};
    EPX_Comm old = EPX_COMM_NULL, comm = EPX_COMM_NULL;
    double begun = now_ms();
    int rc;

    enter_space(group);
    EXPECT(group, scene_create(group, gather, hints, &old) == EPX_SUCCESS);
    space_await();
    if (is_last(group))
        expect_blow(SIGKILL, group->scene->number);
    while ((rc = scene_exchange(group, old, MPI_STATUS_IGNORE)) == EPX_SUCCESS)
        begun = now_ms();
    EXPECT(group, rc == EPX_ERR_TIMEOUT, "error %d", rc);
    EXPECT(group, now_ms() - begun < BOUND_MS, "after %.0f ms", now_ms() - begun);
    EXPECT(group, shrink(group, old, &comm) == EPX_SUCCESS);
    use_new(group, comm, group->size - 1);
    EXPECT(group, EPX_Comm_free(&old) == EPX_SUCCESS);
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS);
}

/* The rank that stopped gets the error of all, then that the others went on, and can leave. */
static void wake_up(struct group *group, struct old *old)
{
    EPX_Comm comm = EPX_COMM_NULL;
    int rc = work(group, old);

    EXPECT(group, rc == EPX_ERR_TIMEOUT, "error %d", rc);
    rc = EPX_Comm_shrink(old->comm, &comm);
    EXPECT(group, rc == EPX_ERR_TIMEOUT && comm == EPX_COMM_NULL, "error %d", rc);
    EXPECT(group, EPX_Route_free(&old->route) == EPX_SUCCESS);
    EXPECT(group, EPX_Free_mem(old->memory, old->comm) == EPX_SUCCESS);
    EXPECT(group, EPX_Comm_free(&old->comm) == EPX_SUCCESS);
    atomic_store(&shared->woken, 1);
}

static void a_stopped_rank_is_left(struct group *group)
{
    const double end = now_ms() + 10 * BOUND_MS;
    struct old old;
    EPX_Comm comm = EPX_COMM_NULL;
    int rc;

    make_old(group, &old);
    if (is_last(group)) {
        expect_blow(SIGSTOP, group->scene->number);
        wake_up(group, &old);
        return;
    }
    rc = work(group, &old);
    EXPECT(group, rc == EPX_ERR_TIMEOUT, "error %d", rc);
    rc = shrink(group, old.comm, &comm);
    if (EXPECT(group, rc == EPX_SUCCESS, "error %d", rc))
        use_new(group, comm, group->size - 1);
    if (group->rank == 0)
        kill(atomic_load(&shared->stopped), SIGCONT);
    while (!atomic_load(&shared->woken) && now_ms() < end)
        nap_ms(10);
    EXPECT(group, atomic_load(&shared->woken), "the rank that stopped does not end");
    free_old(group, &old);
    use_new(group, comm, group->size - 1);
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS);
}

/* A communicator that no rank has left is shrunk to itself, and ends. */
static void all_may_live(struct group *group)
{
    struct old old;
    EPX_Comm comm = EPX_COMM_NULL;

    make_old(group, &old);
    EXPECT(group, shrink(group, old.comm, &comm) == EPX_SUCCESS);
    EXPECT(group, scene_exchange(group, old.comm, MPI_STATUS_IGNORE) == EPX_ERR_TIMEOUT);
    use_new(group, comm, group->size);
    free_old(group, &old);
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS);
}

static void arguments_are_checked(struct group *group)
{
    struct old old;

    make_old(group, &old);
    EXPECT(group, EPX_Comm_shrink(old.comm, NULL) == EPX_ERR_ARG);
    EXPECT(group, EPX_Comm_get_ranks(old.comm, NULL) == EPX_ERR_ARG);
    EXPECT(group, scene_exchange(group, old.comm, MPI_STATUS_IGNORE) == EPX_SUCCESS);
    free_old(group, &old);
}

/* kB of memory that is in use by this process, and its part of what it shares. What it maps of
 * files is not counted: the part in a library grows when another program that maps it ends. */
static long find_memory(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    long sum = 0, kb;

    malloc_trim(0);
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "Pss_Anon: %ld kB", &kb) == 1 ||
            sscanf(line, "Pss_Shmem: %ld kB", &kb) == 1)
            sum += kb;
    if (file)
        fclose(file);
    return sum;
}

static int num_cycles(void)
{
    const char *text = getenv("SHRINK_CYCLES");

    return text ? atoi(text) : 40;
}

/* A graph in which each rank sends to the next one, and a request that sends no rows along it. */
struct ring {
    EPX_Graph graph;
    EPX_Request request;
};

/* In memory of EPX_Alloc_mem. */
struct ring_memory {
    int64_t sendcounts[EDGES], sdispls[EDGES], recvcounts[EDGES], rdispls[EDGES];
    float sent, received;
};

static int make_graph(const struct group *group, EPX_Comm comm, EPX_Graph *graph)
{
    int sources[EDGES], destinations[EDGES];

    for (int i = 0; i < EDGES; i++) {
        sources[i] = (group->rank + group->size - 1) % group->size;
        destinations[i] = (group->rank + 1) % group->size;
    }
    return EPX_Graph_create_adjacent(comm, EDGES, sources, EDGES, destinations, graph);
}

static void make_ring(struct group *group, EPX_Comm comm, struct ring_memory *at, struct ring *ring)
{
    EXPECT(group, make_graph(group, comm, &ring->graph) == EPX_SUCCESS);
    EXPECT(group, EPX_Neighbor_alltoallv_init(&at->sent, at->sendcounts, at->sdispls, &at->received,
                                              at->recvcounts, at->rdispls, 0, 1, EPX_FLOAT32,
                                              ring->graph, EPX_STREAM_NULL, EPX_FIXED_COUNTS,
                                              &ring->request) == EPX_SUCCESS);
}

/* A communicator with one ring that is freed before it is shrunk, and one that is freed later. */
struct old_rings {
    struct old old;
    struct ring_memory *memory;
    struct ring early, late;
};

static void make_old_rings(struct group *group, struct old_rings *rings)
{
    EPX_Comm comm;

    make_old(group, &rings->old);
    comm = rings->old.comm;
    EXPECT(group, EPX_Alloc_mem(sizeof(*rings->memory), comm, &rings->memory) == EPX_SUCCESS);
    space_fill(rings->memory, 0, sizeof(*rings->memory));
    make_ring(group, comm, rings->memory, &rings->early);
    make_ring(group, comm, rings->memory, &rings->late);
}

/* In each cycle a child plays the last rank, and dies, in every second one while the others wait
 * for it in the exchange that has begun. */
static void play_and_die(struct group *group)
{
    for (int i = 0; i < num_cycles(); i++) {
        pid_t child = fork();
        struct old_rings rings;

        if (child == 0) {
            make_old_rings(group, &rings);
            expect_blow(SIGKILL, 2000);
            for (;;)
                i % 2 ? pause() : work(group, &rings.old);
        }
        waitpid(child, NULL, 0);
    }
}

/* Until the communicator has ended. Then a graph cannot be made. */
static void lose_last(struct group *group, struct old_rings *rings, int in_ring)
{
    struct ring *early = &rings->early;
    EPX_Graph graph = EPX_GRAPH_NULL;

    if (in_ring)
        EXPECT(group, EPX_Start(&early->request) == EPX_SUCCESS);
    else
        work(group, &rings->old);
    EXPECT(group, EPX_Graph_free(&early->graph) == EPX_SUCCESS);
    if (in_ring)
        EXPECT(group, EPX_Wait(&early->request, MPI_STATUS_IGNORE) == EPX_ERR_TIMEOUT);
    EXPECT(group, EPX_Request_free(&early->request) == EPX_SUCCESS);
    EXPECT(group, make_graph(group, rings->old.comm, &graph) == EPX_ERR_TIMEOUT);
}

static void free_old_rings(struct group *group, struct old_rings *rings)
{
    EXPECT(group, EPX_Free_mem(rings->memory, rings->old.comm) == EPX_SUCCESS);
    EXPECT(group, EPX_Graph_free(&rings->late.graph) == EPX_SUCCESS);
    free_old(group, &rings->old);
    EXPECT(group, EPX_Request_free(&rings->late.request) == EPX_SUCCESS);
}

/* The least of the GPU's memory that was in use in cycles of the second quarter, and of the second
 * half. Other processes use it, too: all ranks have made what a cycle begins with. */
static void note_used(long least[2], int cycle, int cycles)
{
    const long used = space_used_kb();
    long *at = &least[cycle >= cycles / 2];

    if (cycle >= cycles / 4 && used < *at)
        *at = used;
}

static void cycles_leave_nothing(struct group *group)
{
    const int cycles = num_cycles();
    long before = 0, after, used[2] = {LONG_MAX, LONG_MAX};

    if (is_last(group)) {
        play_and_die(group);
        return;
    }
    for (int i = 0; i < cycles; i++) {
        struct old_rings rings;
        EPX_Comm comm = EPX_COMM_NULL;

        make_old_rings(group, &rings);
        note_used(used, i, cycles);
        lose_last(group, &rings, i % 2);
        EXPECT(group, shrink(group, rings.old.comm, &comm) == EPX_SUCCESS);
        use_new(group, comm, group->size - 1);
        free_old_rings(group, &rings);
        EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS);
        if (i == cycles / 4)
            before = find_memory();
        if (cycles >= 4 && i % (cycles / 4) == 0 && group->rank == 0) {
            printf("memory: %ld kB after %d cycles\n", find_memory(), i + 1);
            fflush(stdout);
        }
    }
    after = find_memory();
    if (group->rank == 0)
        printf("memory: %ld kB after all %d cycles\n", after, cycles);
    if (group->rank == 0 && on_gpu)
        printf("memory of the GPU: %ld kB at first, %ld kB later\n", used[0], used[1]);
    EXPECT(group, after < before + 512, "memory grew from %ld to %ld kB in %d cycles", before,
           after, cycles - cycles / 4);
    EXPECT(group, used[1] < used[0] + SLACK_KB, "of the GPU, %ld kB were in use, and %ld kB later",
           used[0], used[1]);
}

static void make_and_free_memory(struct group *group, EPX_Comm comm)
{
    void *memory = NULL;

    for (int i = 0; i < 30; i++) { /* until a GPU has done with the process that was killed */
        EXPECT(group, EPX_Alloc_mem(WINDOW_BYTES, comm, &memory) == EPX_SUCCESS);
        EXPECT(group, EPX_Free_mem(memory, comm) == EPX_SUCCESS);
        nap_ms(100);
    }
}

/* What a process that only stopped has mapped of the GPU's memory is freed when it has ended. */
static void it_stays_mapped(struct group *group)
{
    struct old old;
    EPX_Comm comm = EPX_COMM_NULL;
    long whole, kept, freed;

    make_old(group, &old);
    if (is_last(group)) {
        expect_blow(SIGSTOP, group->scene->number);
        for (;;)
            work(group, &old);
    }
    work(group, &old);
    EXPECT(group, shrink(group, old.comm, &comm) == EPX_SUCCESS);
    whole = space_used_kb();
    free_old(group, &old);
    use_new(group, comm, group->size - 1);
    kept = space_used_kb();
    if (group->rank == 0)
        kill(atomic_load(&shared->stopped), SIGKILL);
    make_and_free_memory(group, comm);
    freed = space_used_kb();
    if (group->rank == 0)
        printf("memory of the GPU: %ld kB, %ld kB kept, %ld kB\n", whole, kept, freed);
    EXPECT(group, whole - kept < SLACK_KB && kept - freed > SLACK_KB, "%ld kB, %ld kB kept, %ld kB",
           whole, kept, freed);
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS);
}

#define DIES(us)                                                                                   \
    {                                                                                              \
        "a rank that dies after " #us " us is left", 3, survivors_go_on, "", 1, us                 \
    }
#define DIES_IN_ROUTE(us)                                                                          \
    {                                                                                              \
        "a rank that dies after " #us " us of creating routes is left", 3, survivors_go_on,        \
            "route", 1, us                                                                         \
    }
#define DIES_IN_SHRINK(us)                                                                         \
    {                                                                                              \
        "a rank that dies after " #us " us of the shrink is left", 4, survivors_go_on, "", 2, us   \
    }
#define STOPS(us)                                                                                  \
    {                                                                                              \
        "a rank that stops after " #us " us is left when it wakes", 3, a_stopped_rank_is_left, "", \
            0, us                                                                                  \
    }

static const struct scene scenes[] = {
    {"all may live", 3, all_may_live, "", 0, 0},
    {"arguments are checked", 2, arguments_are_checked, "", 0, 0},
    DIES(0),
    DIES(300),
    DIES(20000),
    {"two ranks that die are left", 4, survivors_go_on, "", 2, 1000},
    {"all but one may die", 4, survivors_go_on, "", 3, 1000},
    {"one of two may die", 2, survivors_go_on, "", 1, 100},
    DIES_IN_ROUTE(0),
    DIES_IN_ROUTE(1000),
    DIES_IN_ROUTE(7000),
    DIES_IN_SHRINK(0),
    DIES_IN_SHRINK(500),
    DIES_IN_SHRINK(3000),
    DIES_IN_SHRINK(9000),
    DIES_IN_SHRINK(30000),
    STOPS(0),
    STOPS(700),
    STOPS(10000),
    {"a thread looks after kernels", 3, a_thread_looks_after_kernels, "", 1, 20000},
    {"cycles leave nothing", 3, cycles_leave_nothing, "", 0, 0},
    {"memory is kept for a process that stopped", 3, it_stays_mapped, "", 1, 10000},
};
enum { SCENES = sizeof(scenes) / sizeof(scenes[0]) };

int main(int argc, char **argv)
{
    const char *name = getenv("EPX_TRANSPORT");
    static char hint[64];

    if (name && *name)
        snprintf(hint, sizeof(hint), "epx_transport=%s", name);
    transport = *hint ? hint : transport;
    mallopt(M_MMAP_THRESHOLD, 65536); /* what is freed goes back to the system, see find_memory */
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return EXIT_FAILURE;
    on_gpu = space_of_scenes();
    if (on_gpu < 0)
        return 77;
    /* The last one is of memory that CUDA maps into other processes. */
    return scene_play(scenes,
                      on_gpu && strcmp(hint, "epx_transport=ipc") == 0 ? SCENES : SCENES - 1,
                      argc < 2 ? getenv("SCENE") : argv[1]);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_bootstrap.c - EPX_Comm_create_from in processes without MPI: this program starts its ranks
 * by fork, and is not linked with MPI. Ranks that live are told what went wrong, soon, and by the
 * name of the rank that is to blame; whoever knows no key does no harm.
 */
#include <epx.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, MOST_BYTES = 1 << 14, TIMEOUT_MS = 20000, SOON_MS = 1000, STRANGERS = 40 };

/* Memory by which ranks gather; a rank that does not come is waited for TIMEOUT_MS at most. */
struct board {
    _Atomic int came, round, errors;
    char bytes[MAX_RANKS][MOST_BYTES];
};

struct group {
    struct board *board;
    int rank, size;
    int calls;         /* of allgather, by this rank */
    const char *fault; /* what this rank does wrong; "" = nothing */
};

static struct board *boards[2], *errors_of_all;
static const char *claim;

static int complain(int rank, const char *format, ...)
{
    char text[1024];
    va_list values;

    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    fprintf(stderr, "%s, rank %d: %s\n", claim, rank, text);
    atomic_fetch_add(&errors_of_all->errors, 1);
    return 0;
}

#define EXPECT(group, condition, ...)                                                              \
    ((condition) ? 1 : complain((group)->rank, #condition ": " __VA_ARGS__))

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static void nap_ms(long ms)
{
    const struct timespec nap = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&nap, NULL);
}

static int barrier(struct group *group)
{
    struct board *board = group->board;
    const int round = atomic_load(&board->round);
    const double end = now_ms() + TIMEOUT_MS;

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

static int has_fault(const struct group *group, const char *fault)
{
    return strcmp(group->fault, fault) == 0;
}

static int gather(const void *own, void *all, size_t bytes, void *arg)
{
    struct group *group = arg;

    if (has_fault(group, "dies before"))
        raise(SIGKILL);
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
    if (has_fault(group, "dies after"))
        raise(SIGKILL);
    if (has_fault(group, "stops"))
        raise(SIGSTOP);
    if (has_fault(group, "fails"))
        return 77;
    if (has_fault(group, "gathers zeros"))
        memset(all, 0, bytes * (size_t)group->size);
    if (has_fault(group, "gathers its own") && group->rank)
        memcpy(all, own, bytes);
    if (has_fault(group, "is late"))
        nap_ms(500);
    return 0;
}

static int create(struct group *group, const char *hint, EPX_Comm *comm)
{
    const char *const hints[] = {"epx_timeout_ms=20000", "epx_window_bytes=65536", hint, NULL};
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;

    bootstrap.rank = group->rank;
    bootstrap.num_ranks = group->size;
    bootstrap.allgather = gather;
    bootstrap.arg = group;
    return EPX_Comm_create_from(&bootstrap, hints, comm);
}

/* Every rank sends each other one row of its own. */
static int exchange(const struct group *group, EPX_Comm comm, MPI_Status *status)
{
    int64_t counts[4][MAX_RANKS];
    int32_t sent[MAX_RANKS], received[MAX_RANKS];
    EPX_Request request;
    int rc;

    for (int r = 0; r < group->size; r++) {
        counts[0][r] = 1;
        counts[1][r] = r;
        sent[r] = group->rank * MAX_RANKS + r;
        received[r] = -1;
    }
    rc = EPX_Alltoallv(sent, counts[0], counts[1], received, counts[2], counts[3], MAX_RANKS, 1,
                       EPX_FLOAT32, comm, EPX_STREAM_NULL, &request);
    if (rc == EPX_SUCCESS)
        rc = EPX_Wait(&request, status);
    for (int r = 0; rc == EPX_SUCCESS && r < group->size; r++)
        EXPECT(group, received[r] == r * MAX_RANKS + group->rank, "%d from rank %d", received[r],
               r);
    return rc;
}

/* A layer whose experts multiply by 2: each token's sum is 4 times its weights. */
static void run_layer(const struct group *group, EPX_Comm comm)
{
    enum { TOKENS = 5, WIDTH = 3 };
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    int64_t ids[TOKENS][2];
    float tokens[TOKENS * WIDTH], weights[TOKENS][2], sums[TOKENS * WIDTH], *rows, *slot_weights;
    EPX_Request requests[2];

    attr.num_experts = 2 * group->size;
    attr.top_k = 2;
    attr.max_tokens = TOKENS;
    if (!EXPECT(group, EPX_Route_create(&attr, comm, &route) == EPX_SUCCESS, "no route"))
        return;
    EPX_Route_get_view(route, &view);
    rows = calloc((size_t)view.capacity + 1, sizeof(float[WIDTH]));
    slot_weights = calloc((size_t)view.capacity + 1, sizeof(float));
    for (int t = 0; t < TOKENS; t++)
        for (int k = 0; k < 2; k++) {
            ids[t][k] = (group->rank + 3 * t + k) % attr.num_experts;
            weights[t][k] = (float)(1 + k);
        }
    for (int i = 0; i < TOKENS * WIDTH; i++)
        tokens[i] = (float)(group->rank + i);
    EPX_Route_dispatch(ids, TOKENS, tokens, weights[0], rows, slot_weights, WIDTH, EPX_FLOAT32,
                       route, EPX_STREAM_NULL, &requests[0]);
    EXPECT(group, EPX_Wait(&requests[0], MPI_STATUS_IGNORE) == EPX_SUCCESS, "dispatch");
    for (int64_t i = 0; i < *view.num_rows * WIDTH; i++)
        rows[i] *= 2;
    EPX_Combine(rows, slot_weights, sums, WIDTH, EPX_FLOAT32, route, EPX_STREAM_NULL, &requests[1]);
    EXPECT(group, EPX_Wait(&requests[1], MPI_STATUS_IGNORE) == EPX_SUCCESS, "combine");
    for (int i = 0; i < TOKENS * WIDTH; i++)
        EXPECT(group, sums[i] == 6 * tokens[i], "sum %d is %f", i, (double)sums[i]);
    EPX_Route_free(&route);
    free(rows);
    free(slot_weights);
}

static void expect_message(const struct group *group, EPX_Comm comm, const char *part)
{
    char message[EPX_MAX_ERROR_STRING] = "";
    int length;

    EPX_Comm_get_error_message(comm, message, &length);
    EXPECT(group, strstr(message, part), "\"%s\" has no \"%s\"", message, part);
}

/* Also if the system does not tell. */
static int has_loaded_mpi(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int found = !maps, lines = 0;

    for (; maps && fgets(line, sizeof(line), maps); lines++)
        found |= strstr(line, "libmpi") || strstr(line, "libepx_mpi");
    if (maps)
        fclose(maps);
    return found || !lines;
}

static void works(struct group *group, const char *hint)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Status status;
    const char *equals = hint ? strchr(hint, '=') : NULL;
    char key[64] = "epx_control", value[EPX_MAX_HINT_STRING];
    int rank = -1, size = -1, length = -1;

    if (!EXPECT(group, create(group, hint, &comm) == EPX_SUCCESS, "not created with %s", hint))
        return;
    EPX_Comm_rank(comm, &rank);
    EPX_Comm_size(comm, &size);
    EXPECT(group, rank == group->rank && size == group->size, "%d of %d", rank, size);
    if (equals)
        snprintf(key, sizeof(key), "%.*s", (int)(equals - hint), hint);
    EXPECT(group, EPX_Comm_get_hint(comm, key, value, &length) == EPX_SUCCESS, "no hint %s", key);
    EXPECT(group, strcmp(value, equals ? equals + 1 : "sockets") == 0, "%s is %s", key, value);
    EXPECT(group, length == (int)strlen(value), "length %d of %s", length, value);
    EPX_Comm_get_hint(comm, "no_hint", value, &length);
    EXPECT(group, length == 0 && !*value, "no_hint is %s", value);
    EXPECT(group, exchange(group, comm, &status) == EPX_SUCCESS, "no exchange");
    EXPECT(group, status.MPI_ERROR == EPX_SUCCESS, "status %d", status.MPI_ERROR);
    run_layer(group, comm);
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS && !comm, "not freed");
    EXPECT(group, !has_loaded_mpi(), "MPI is loaded");
}

static void works_by_default(struct group *group)
{
    works(group, NULL);
}

#ifdef EPX_HAVE_UCX
static void works_over_ucx(struct group *group)
{
    works(group, "epx_transport=ucx");
}

static void works_between_nodes(struct group *group)
{
    works(group, "epx_ranks_per_node=2");
}
#endif

static void works_with_a_thread(struct group *group)
{
    works(group, "epx_progress=thread");
}

static void objects_of_mpi_are_refused(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;
    MPI_Info info;

    EXPECT(group, create(group, NULL, &comm) == EPX_SUCCESS, "not created");
    EXPECT(group, EPX_Comm_get_info(comm, &info) == EPX_ERR_NOT_INITIALIZED, "info");
    EXPECT(group, EPX_Comm_set_errhandler(comm, (MPI_Errhandler)0) == EPX_ERR_NOT_INITIALIZED,
           "error handler");
    expect_message(group, comm, "no error handler");
    EPX_Comm_free(&comm);
}

static void mpi_is_refused(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;

    EXPECT(group, create(group, "epx_transport=mpi", &comm) == EPX_ERR_TRANSPORT, "taken");
    EXPECT(group, comm == EPX_COMM_NULL, "a communicator");
}

static void a_bad_hint_is_told_to_all(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;
    const char *hint = group->rank == 1 ? "epx_max_sms=few" : NULL;

    EXPECT(group, create(group, hint, &comm) == EPX_ERR_INFO, "another error");
    EXPECT(group, create(group, group->rank ? NULL : "epx_max_sms", &comm) == EPX_ERR_INFO,
           "another error");
    EXPECT(group, create(group, group->rank ? NULL : "epx_max_sms=5", &comm) == EPX_ERR_ARG,
           "another error for hints that differ");
}

static void bad_arguments_are_refused(struct group *group)
{
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;
    EPX_Comm comm = EPX_COMM_NULL;
    int size;

    EXPECT(group, EPX_Comm_create_from(NULL, NULL, &comm) == EPX_ERR_ARG, "bootstrap");
    EXPECT(group, EPX_Comm_create_from(&bootstrap, NULL, &comm) == EPX_ERR_ARG, "no allgather");
    bootstrap.allgather = gather;
    EXPECT(group, EPX_Comm_create_from(&bootstrap, NULL, NULL) == EPX_ERR_ARG, "newcomm");
    bootstrap.num_ranks = 0;
    EXPECT(group, EPX_Comm_create_from(&bootstrap, NULL, &comm) == EPX_ERR_ARG, "0 ranks");
    bootstrap.num_ranks = 1;
    bootstrap.rank = 1;
    EXPECT(group, EPX_Comm_create_from(&bootstrap, NULL, &comm) == EPX_ERR_ARG, "rank");
    bootstrap.rank = 0;
    bootstrap.size = 8;
    EXPECT(group, EPX_Comm_create_from(&bootstrap, NULL, &comm) == EPX_ERR_ARG, "size");
    EXPECT(group, EPX_Comm_size(comm, &size) != EPX_SUCCESS, "a null handle");
}

/* Two groups that share a rank, and two that do not, one after the other and at a time. */
static void several_communicators_work(struct group *group)
{
    EPX_Comm all = EPX_COMM_NULL, pair = EPX_COMM_NULL;
    struct group part = {boards[1], group->rank % 2, 2, 0, ""};

    EXPECT(group, create(group, NULL, &all) == EPX_SUCCESS, "not created");
    if (group->rank < 2) {
        EXPECT(group, create(&part, NULL, &pair) == EPX_SUCCESS, "no pair");
        EXPECT(group, exchange(&part, pair, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange");
    }
    EXPECT(group, exchange(group, all, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange of all");
    if (group->rank < 2)
        EXPECT(group, EPX_Comm_free(&pair) == EPX_SUCCESS, "pair not freed");
    EXPECT(group, EPX_Comm_free(&all) == EPX_SUCCESS, "not freed");
}

static void *use_own_board(void *own)
{
    struct group *group = own;

    works(group, NULL);
    return NULL;
}

static void threads_make_communicators_at_a_time(struct group *group)
{
    struct group other = {boards[1], group->rank, group->size, 0, ""};
    pthread_t thread;

    pthread_create(&thread, NULL, use_own_board, &other);
    works(group, NULL);
    pthread_join(thread, NULL);
}

/* A rank that is killed; it may have a child, which must not keep its sockets open. */
static void a_rank_is_killed(struct group *group)
{
    const int victim = group->size - 1;
    EPX_Comm comm = EPX_COMM_NULL;
    double start;
    int rc;

    if (!EXPECT(group, create(group, NULL, &comm) == EPX_SUCCESS, "not created"))
        return;
    EXPECT(group, exchange(group, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange");
    if (group->rank == victim) {
        if (has_fault(group, "has a child") && fork() == 0) {
            nap_ms(3 * SOON_MS);
            _exit(0);
        }
        raise(SIGKILL);
    }
    start = now_ms();
    rc = exchange(group, comm, MPI_STATUS_IGNORE);
    EXPECT(group, rc == EPX_ERR_TIMEOUT, "error %d", rc);
    EXPECT(group, now_ms() - start < SOON_MS, "after %.0f ms", now_ms() - start);
    expect_message(group, comm, "rank 2 is gone");
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS, "not freed");
}

/* What another rank did ends the creation on all that live, before anybody's time-out. */
static void creation_fails_soon(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;
    double start = now_ms();
    int rc = create(group, NULL, &comm);

    EXPECT(group, rc == EPX_ERR_TIMEOUT || rc == EPX_ERR_ARG, "error %d", rc);
    EXPECT(group, comm == EPX_COMM_NULL, "a communicator");
    EXPECT(group, now_ms() - start < 2 * SOON_MS, "after %.0f ms", now_ms() - start);
}

/* A rank stops: the others find out by the time-out alone. */
static void a_stopped_rank_is_named(struct group *group)
{
    const char *const hints[] = {"epx_timeout_ms=1000", NULL};
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;
    EPX_Comm comm = EPX_COMM_NULL;
    double start = now_ms();
    int rc;

    bootstrap.rank = group->rank;
    bootstrap.num_ranks = group->size;
    bootstrap.allgather = gather;
    bootstrap.arg = group;
    rc = EPX_Comm_create_from(&bootstrap, hints, &comm);
    EXPECT(group, rc == EPX_ERR_TIMEOUT, "error %d", rc);
    EXPECT(group, now_ms() - start < 4 * SOON_MS, "after %.0f ms", now_ms() - start);
}

/* Connects to every door of EPX on this machine, and says nothing, or what is no greeting. */
static void knock_everywhere(const struct group *group)
{
    FILE *sockets = fopen("/proc/net/unix", "r");
    char line[512], junk[256];
    int fds[STRANGERS], num = 0, doors = 0;

    memset(junk, 'x', sizeof(junk));
    while (sockets && fgets(line, sizeof(line), sockets)) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char *name = strstr(line, "@epx-");
        socklen_t length;

        if (!name)
            continue;
        doors++;
        name[strcspn(name, "\n")] = '\0';
        memcpy(address.sun_path + 1, name + 1, strlen(name + 1));
        length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
        for (int i = 0; i < 4 && num < STRANGERS; i++) {
            int fd = fds[num++] = socket(AF_UNIX, SOCK_STREAM, 0);

            if (connect(fd, (struct sockaddr *)&address, length) == 0 && i % 2)
                (void)!send(fd, junk, sizeof(junk), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    EXPECT(group, doors > 0, "no doors");
    if (sockets)
        fclose(sockets);
    nap_ms(200);
    for (int i = 0; i < num; i++)
        close(fds[i]);
}

/* The last rank knocks at the others' doors from its allgather, before it goes on. */
static int gather_and_knock(const void *own, void *all, size_t bytes, void *arg)
{
    struct group *group = arg;
    int error = gather(own, all, bytes, arg);

    if (group->rank == group->size - 1)
        knock_everywhere(group);
    return error;
}

static void strangers_do_no_harm(struct group *group)
{
    EPX_Bootstrap bootstrap = EPX_BOOTSTRAP_INIT;
    EPX_Comm comm = EPX_COMM_NULL;

    bootstrap.rank = group->rank;
    bootstrap.num_ranks = group->size;
    bootstrap.allgather = gather_and_knock;
    bootstrap.arg = group;
    EXPECT(group, EPX_Comm_create_from(&bootstrap, NULL, &comm) == EPX_SUCCESS, "not created");
    EXPECT(group, exchange(group, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange");
    EPX_Comm_free(&comm);
}

/* The last rank does what `fault` says; it may end by a signal then. */
static const struct scene {
    const char *claim;
    int size;
    void (*run)(struct group *group);
    const char *fault;
    int falls;
} scenes[] = {
    {"one rank works", 1, works_by_default, "", 0},
    {"two ranks work", 2, works_by_default, "", 0},
    {"three ranks work", 3, works_by_default, "", 0},
    {"eight ranks work", 8, works_by_default, "", 0},
    {"many ranks work", MAX_RANKS, works_by_default, "", 0},
#ifdef EPX_HAVE_UCX
    {"ranks work over ucx", 3, works_over_ucx, "", 0},
    {"ranks work between nodes", 4, works_between_nodes, "", 0},
#endif
    {"ranks work with a progress thread", 2, works_with_a_thread, "", 0},
    {"a late rank is waited for", 3, works_by_default, "is late", 0},
    {"objects of MPI are refused", 1, objects_of_mpi_are_refused, "", 0},
    {"mpi is refused by name", 2, mpi_is_refused, "", 0},
    {"a bad hint is told to all", 3, a_bad_hint_is_told_to_all, "", 0},
    {"bad arguments are refused", 1, bad_arguments_are_refused, "", 0},
    {"several communicators work", 4, several_communicators_work, "", 0},
    {"threads make communicators at a time", 3, threads_make_communicators_at_a_time, "", 0},
    {"a killed rank is named at once", 3, a_rank_is_killed, "", 1},
    {"a killed rank with a child is named at once", 3, a_rank_is_killed, "has a child", 1},
    {"a rank that dies after the allgather is noticed", 3, creation_fails_soon, "dies after", 1},
    {"a rank that dies as the only other one is noticed", 2, creation_fails_soon, "dies after", 1},
    {"an allgather that fails ends it for all", 3, creation_fails_soon, "fails", 0},
    {"an allgather that gives zeros ends it for all", 3, creation_fails_soon, "gathers zeros", 0},
    {"an allgather that gives the own card for all is refused", 2, creation_fails_soon,
     "gathers its own", 0},
    {"a stopped rank is noticed", 3, a_stopped_rank_is_named, "stops", 1},
    {"strangers do no harm", 3, strangers_do_no_harm, "", 0},
};
enum { SCENES = sizeof(scenes) / sizeof(scenes[0]) };

static pid_t start_rank(const struct scene *scene, int rank)
{
    struct group group = {boards[0], rank, scene->size, 0,
                          rank == scene->size - 1 ? scene->fault : ""};
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
        atomic_store(&boards[b]->came, 0);
        atomic_store(&boards[b]->round, 0);
    }
    for (int r = 0; r < scene->size; r++)
        ranks[r] = start_rank(scene, r);
    for (int r = 0; r < scene->size; r++) {
        const int falls = scene->falls && r == scene->size - 1;

        if (falls)
            kill(ranks[r], SIGKILL);
        waitpid(ranks[r], &status, 0);
        if (!WIFEXITED(status) != falls)
            complain(r, "ended with status %d", status);
    }
}

static struct board *new_board(void)
{
    void *board =
        mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return board == MAP_FAILED ? NULL : board;
}

int main(int argc, char **argv)
{
    int errors;

    boards[0] = errors_of_all = new_board();
    boards[1] = new_board();
    if (!boards[0] || !boards[1])
        return EXIT_FAILURE;
    for (int i = 0; i < SCENES; i++)
        if (argc < 2 || strstr(scenes[i].claim, argv[1])) {
            run(&scenes[i]);
            printf("ran: %s\n", scenes[i].claim);
            fflush(stdout); /* or what the next ranks inherit is printed again */
        }
    errors = atomic_load(&errors_of_all->errors);
    if (errors)
        printf(" Found %d errors\n", errors);
    else
        printf(" No Errors\n");
    return errors ? EXIT_FAILURE : EXIT_SUCCESS;
}

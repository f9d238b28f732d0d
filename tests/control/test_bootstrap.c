/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_bootstrap.c - EPX_Comm_create_from in processes without MPI: this program starts its ranks
 * by fork, and is not linked with MPI. test_contact.c has what goes wrong.
 */
#include <epx.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "control/scenes.h"

static int gather(const void *own, void *all, size_t bytes, void *arg)
{
    struct group *group = arg;
    int error = scene_gather(own, all, bytes, group);

    if (has_fault(group, "is late"))
        nap_ms(500);
    return error;
}

static int create(struct group *group, const char *hint, EPX_Comm *comm)
{
    const char *const hints[] = {"epx_timeout_ms=20000", "epx_window_bytes=65536", hint, NULL};

    return scene_create(group, gather, hints, comm);
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
    EXPECT(group, scene_exchange(group, comm, &status) == EPX_SUCCESS, "no exchange");
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
    struct group part = {scene_boards[1], group->rank % 2, 2, 0, "", group->scene};

    EXPECT(group, create(group, NULL, &all) == EPX_SUCCESS, "not created");
    if (group->rank < 2) {
        EXPECT(group, create(&part, NULL, &pair) == EPX_SUCCESS, "no pair");
        EXPECT(group, scene_exchange(&part, pair, MPI_STATUS_IGNORE) == EPX_SUCCESS, "no exchange");
    }
    EXPECT(group, scene_exchange(group, all, MPI_STATUS_IGNORE) == EPX_SUCCESS,
           "no exchange of all");
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
    struct group other = {scene_boards[1], group->rank, group->size, 0, "", group->scene};
    pthread_t thread;

    pthread_create(&thread, NULL, use_own_board, &other);
    works(group, NULL);
    pthread_join(thread, NULL);
}

enum { MASKED_TOKENS = 3, MOST_CHOICES = 64 };

/* Whether the token of a rank goes to another one: it does to two of three. */
static int is_masked(int rank, int token, int to)
{
    return (rank + token + to) % 3 != 0;
}

/* The ranks of a mask in place of expert ids, -1 behind them. */
static void list_masked(int rank, int size, int token, int64_t ids[MOST_CHOICES])
{
    int num = 0;

    for (int r = 0; r < size; r++)
        if (is_masked(rank, token, r))
            ids[num++] = r;
    while (num < MOST_CHOICES)
        ids[num++] = -1;
}

/* Each rank is the expert of its own number; the rows of tokens that were masked come, in order. */
static void expect_masked(const struct group *group, const EPX_Route_view *view, const float *rows)
{
    int64_t row = 0;

    for (int r = 0; r < group->size; r++)
        for (int t = 0; t < MASKED_TOKENS; t++)
            if (is_masked(r, t, group->rank) && row < *view->num_rows) {
                EXPECT(group, rows[row] == (float)(r * MASKED_TOKENS + t), "row %d is %f", (int)row,
                       (double)rows[row]);
                row++;
            }
    EXPECT(group, row == *view->num_rows, "%d rows", (int)*view->num_rows);
}

static void rows_go_by_a_mask_of_ranks(struct group *group)
{
    EPX_Route_attr attr = EPX_ROUTE_ATTR_INIT;
    EPX_Route route = EPX_ROUTE_NULL;
    EPX_Route_view view = EPX_ROUTE_VIEW_INIT;
    EPX_Comm comm = EPX_COMM_NULL;
    EPX_Request request;
    int64_t ids[MASKED_TOKENS][MOST_CHOICES];
    float tokens[MASKED_TOKENS], *rows;

    if (!EXPECT(group, create(group, NULL, &comm) == EPX_SUCCESS, "not created"))
        return;
    attr.num_experts = group->size;
    attr.top_k = MOST_CHOICES;
    attr.max_tokens = MASKED_TOKENS;
    attr.layout = EPX_RANK_MAJOR;
    if (!EXPECT(group, EPX_Route_create(&attr, comm, &route) == EPX_SUCCESS, "no route"))
        return;
    EPX_Route_get_view(route, &view);
    rows = calloc((size_t)view.capacity, sizeof(*rows));
    for (int t = 0; t < MASKED_TOKENS; t++) {
        list_masked(group->rank, group->size, t, ids[t]);
        tokens[t] = (float)(group->rank * MASKED_TOKENS + t);
    }
    EPX_Route_dispatch(ids, MASKED_TOKENS, tokens, NULL, rows, NULL, 1, EPX_FLOAT32, route,
                       EPX_STREAM_NULL, &request);
    EXPECT(group, EPX_Wait(&request, MPI_STATUS_IGNORE) == EPX_SUCCESS, "dispatch");
    expect_masked(group, &view, rows);
    free(rows);
    EPX_Route_free(&route);
    EPX_Comm_free(&comm);
}

static int gather_alone(const void *own, void *all, size_t bytes, void *unused)
{
    (void)unused;
    memcpy(all, own, bytes);
    return 0;
}

/* How many of the files that a child of this process has open are not open in a child of it. */
static int files_lost_in_child(const int files[], int num)
{
    const pid_t child = fork();
    int lost = 0, status;

    if (child == 0) {
        for (int i = 0; i < num; i++)
            lost += fcntl(files[i], F_GETFD) < 0;
        _exit(lost);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : num;
}

/* Returns what is wrong, 0 = nothing. */
static int be_a_child(EPX_Comm of_parent, const char *hint)
{
    enum { FILES = 40 }; /* among their numbers are those of the parent's connections */
    const char *const hints[] = {hint, NULL};
    EPX_Bootstrap alone = EPX_BOOTSTRAP_INIT;
    EPX_Comm comm = of_parent;
    int files[FILES], rc;

    alone.allgather = gather_alone;
    for (int i = 0; i < FILES; i++)
        files[i] = open("/dev/null", O_RDONLY);
    if (EPX_Comm_free(&comm) != EPX_ERR_COMM)
        return 1;
    if (files_lost_in_child(files, FILES))
        return 2;
    rc = EPX_Comm_create_from(&alone, hints, &comm);
    return rc == EPX_SUCCESS && EPX_Comm_free(&comm) == EPX_SUCCESS ? 0 : 3;
}

/* While the ranks exchange rows. */
static void a_child_is_on_its_own(struct group *group)
{
    EPX_Comm comm = EPX_COMM_NULL;
    int status = -1;

    EXPECT(group, create(group, "epx_progress=thread", &comm) == EPX_SUCCESS, "not created");
    for (int i = 0; i < 3; i++) {
        const pid_t child = fork();

        if (child == 0)
            _exit(be_a_child(comm, "epx_transport=shm"));
        EXPECT(group, scene_exchange(group, comm, MPI_STATUS_IGNORE) == EPX_SUCCESS, "%d", i);
        waitpid(child, &status, 0);
        EXPECT(group, WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    }
    EXPECT(group, EPX_Comm_free(&comm) == EPX_SUCCESS, "not freed");
}

static const struct scene scenes[] = {
    {"one rank works", 1, works_by_default, "", 0, 0},
    {"two ranks work", 2, works_by_default, "", 0, 0},
    {"three ranks work", 3, works_by_default, "", 0, 0},
    {"eight ranks work", 8, works_by_default, "", 0, 0},
    {"many ranks work", MAX_RANKS, works_by_default, "", 0, 0},
    {"rows go by a mask of ranks", MAX_RANKS, rows_go_by_a_mask_of_ranks, "", 0, 0},
#ifdef EPX_HAVE_UCX
    {"ranks work over ucx", 3, works_over_ucx, "", 0, 0},
    {"ranks work between nodes", 4, works_between_nodes, "", 0, 0},
#endif
    {"ranks work with a progress thread", 2, works_with_a_thread, "", 0, 0},
    {"a late rank is waited for", 3, works_by_default, "is late", 0, 0},
    {"objects of MPI are refused", 1, objects_of_mpi_are_refused, "", 0, 0},
    {"mpi is refused by name", 2, mpi_is_refused, "", 0, 0},
    {"a bad hint is told to all", 3, a_bad_hint_is_told_to_all, "", 0, 0},
    {"bad arguments are refused", 1, bad_arguments_are_refused, "", 0, 0},
    {"several communicators work", 4, several_communicators_work, "", 0, 0},
    {"a child of a rank is on its own", 3, a_child_is_on_its_own, "", 0, 0},
    {"threads make communicators at a time", 3, threads_make_communicators_at_a_time, "", 0, 0},
};

int main(int argc, char **argv)
{
    return scene_play(scenes, sizeof(scenes) / sizeof(scenes[0]), argc < 2 ? NULL : argv[1]);
}

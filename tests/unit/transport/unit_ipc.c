/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_ipc.c - windows that ranks map from each other, without GPUs: pretend_ipc.c has the calls of
 * CUDA. The tests ask who reaches what, what happens if a rank cannot, and when memory is given
 * back, also that of ranks which go on without others.
 */
#define _GNU_SOURCE /* WNOWAIT */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/device/device.h"
#include "pretend/pretend_copies.h"
#include "pretend/pretend_ipc.h"
#include "support/suite.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/cuda/lost/kept_memory.h"

enum { WINDOWS = 5, ROUNDS = 4, SMS = 132 };

static const struct epx_transport_ops *const ops = &epx_transport_ipc;
static EPX_Comm comm;
static struct epx_transport transport;
static void *state;

int epx_fail_cuda(cudaError_t error, const char *call)
{
    return epx_fail(EPX_ERR_CUDA, "%s: %s", call, cudaGetErrorString(error));
}

static void open_transport(void)
{
    comm = suite_comm("epx_transport", "mpi", NULL);
    state = epx_memory_zeroed(1, ops->state_bytes);
    transport = (struct epx_transport){.comm = comm, .ops = ops, .state = state};
    EXPECT_CODE(ops->create(&transport), EPX_SUCCESS);
    SETTLE();
}

/* Checks that nothing is left, also of windows that were not given back before. */
static void close_transport(void)
{
    ops->free(state);
    free(state);
    EXPECT(pretend_num_allocated() == 0, "%d allocations left", pretend_num_allocated());
    EXPECT(pretend_num_opened() == 0, "%d mappings left", pretend_num_opened());
    EXPECT(pretend_num_misused() == 0, "%d calls were wrong", pretend_num_misused());
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static struct epx_window *create_window(size_t bytes)
{
    struct epx_window *window = NULL;

    EXPECT_CODE(ops->window_create(state, bytes, &window), EPX_SUCCESS);
    SETTLE();
    return window;
}

/* Stores a number of this rank's, or its last bytes, at its place in the window of every rank. */
static void store(const struct epx_window *window, uint64_t number)
{
    for (int r = 0; r < suite_size; r++) {
        uint64_t word = number * 64 + (uint64_t)suite_rank;

        memcpy(window->address[r] + suite_rank * (int)sizeof(word), &word, sizeof(word));
    }
    SETTLE();
}

static void check(const struct epx_window *window, uint64_t number)
{
    for (int r = 0; r < suite_size; r++) {
        uint64_t word;

        memcpy(&word, window->own + r * (int)sizeof(word), sizeof(word));
        EXPECT(word == number * 64 + (uint64_t)r, "%llu from rank %d in window %llu",
               (unsigned long long)word, r, (unsigned long long)number);
        EXPECT(window->device_address[r] == window->address[r], "rank %d in the table", r);
    }
    EXPECT(window->address[suite_rank] == window->own, "the own part is elsewhere");
    SETTLE();
}

/* Sizes differ by rank, and some are 0; windows are freed in any order, and given back with the
 * next. */
START_TEST(every_rank_reaches_every_window)
{
    struct epx_window *window[WINDOWS];

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WINDOWS; i++) {
            window[i] = create_window((size_t)((suite_rank + i) % 3) << 20);
            EXPECT(window[i]->number == round * WINDOWS + i, "number %d", window[i]->number);
        }
        for (int i = 0; i < WINDOWS; i++)
            store(window[i], (uint64_t)i);
        for (int i = 0; i < WINDOWS; i++)
            check(window[i], (uint64_t)i);
        for (int i = 0; i < WINDOWS; i++)
            ops->window_free(state, window[(i + suite_rank) % WINDOWS]);
        SETTLE();
    }
}
END_TEST

START_TEST(freed_memory_is_given_back_by_all)
{
    int before = pretend_num_allocated();
    struct epx_window *kept = create_window(100), *freed = create_window(5 << 20);

    EXPECT(pretend_num_allocated() == before + 2, "%d allocations", pretend_num_allocated());
    EXPECT(pretend_num_opened() == 2 * (suite_size - 1), "%d mappings", pretend_num_opened());
    ops->window_free(state, freed);
    ops->reclaim(state);
    EXPECT(pretend_num_allocated() == before + 1, "%d allocations", pretend_num_allocated());
    EXPECT(pretend_num_opened() == suite_size - 1, "%d mappings", pretend_num_opened());
    SETTLE();
    store(kept, 7);
    check(kept, 7);
    ops->window_free(state, kept);
}
END_TEST

/* A call of CUDA that fails on one rank. */
static const struct {
    enum pretend_call call;
    int after_others; /* fails for the last of the other ranks, not for the first */
    int code;
} failures[] = {
    {PRETEND_MALLOC, 0, EPX_ERR_NO_MEM},
    {PRETEND_EXPORT, 0, EPX_ERR_TRANSPORT},
    {PRETEND_OPEN, 0, EPX_ERR_TRANSPORT},
    {PRETEND_OPEN, 1, EPX_ERR_TRANSPORT},
};

START_TEST(what_one_rank_cannot_have_none_has)
{
    int kind = _i / 2, victim = _i % 2 ? suite_size - 1 : 0;
    int before = pretend_num_allocated();
    int concerns = kind == 0 || suite_size > 1; /* one rank alone shares nothing */
    struct epx_window *window = NULL;

    if (suite_rank == victim && concerns)
        pretend_failure(failures[kind].call, failures[kind].after_others * (suite_size - 2));
    if (concerns) {
        EXPECT_CODE(ops->window_create(state, 64, &window), failures[kind].code);
        EXPECT(!window, "there is a window");
        EXPECT(pretend_num_allocated() == before, "%d allocations, %d before",
               pretend_num_allocated(), before);
        EXPECT(pretend_num_opened() == 0, "%d mappings", pretend_num_opened());
    }
    SETTLE();
    window = create_window(64);
    store(window, 3);
    check(window, 3);
    ops->window_free(state, window);
}
END_TEST

static void expect_usable(int wanted, const char *part)
{
    char why[EPX_WHY_MAX] = "";
    int usable = ops->usable(comm, why), alone = suite_size == 1;

    EXPECT(usable == (wanted || alone), "usable: %d (%s)", usable, why);
    EXPECT(usable || strstr(why, part), "\"%s\" lacks \"%s\"", why, part);
    SETTLE();
}

START_TEST(gpus_must_be_in_reach_or_shared)
{
    pretend_gpu(0, 32 * suite_size);
    expect_usable(1, "");
    pretend_gpu(0, 32 * suite_size - 1);
    expect_usable(0, "epx_max_sms");
    pretend_gpu(suite_rank, SMS);
    expect_usable(0, "not visible");
    pretend_visible(suite_size);
    expect_usable(1, "");
    pretend_peers(1, 0);
    expect_usable(0, "no atomics");
    pretend_peers(0, 0);
    expect_usable(0, "cannot be reached");
    pretend_peers(1, 1);
    pretend_visible(1);
    pretend_gpu(0, SMS);
}
END_TEST

START_TEST(nodes_are_not_crossed)
{
    EPX_Comm apart = suite_comm("epx_transport", "mpi", "epx_ranks_per_node", "1", NULL);
    char why[EPX_WHY_MAX] = "";

    EXPECT(ops->usable(apart, why) == (suite_size == 1), "usable (%s)", why);
    EXPECT(suite_size == 1 || strstr(why, "nodes"), "why: %s", why);
    EXPECT_CODE(EPX_Comm_free(&apart), EPX_SUCCESS);
    SETTLE();
}
END_TEST

/* Rank 0 is left behind, and lives. */
START_TEST(who_goes_on_without_others_frees_alone)
{
    const int before = pretend_num_allocated(), goes_on = suite_rank > 0 || suite_size == 1;
    struct epx_window *freed = create_window(100), *window = create_window(5 << 20);

    ops->window_free(state, freed);
    if (goes_on) {
        EXPECT_CODE(ops->leave(state), EPX_SUCCESS);
        EXPECT_CODE(ops->leave(state), EPX_SUCCESS);
        EXPECT(pretend_num_opened() == 0, "%d mappings", pretend_num_opened());
    }
    SETTLE();
    comm->lost = calloc((size_t)suite_size, 1);
    comm->lost[0] = suite_size > 1;
    comm->finished = EPX_ERR_TIMEOUT;
    if (goes_on) {
        const int wanted = before + (suite_size > 1 ? 2 : 0);

        ops->window_free(state, window);
        ops->reclaim(state);
        EXPECT(pretend_num_allocated() == wanted, "%d allocations", pretend_num_allocated());
    }
    SETTLE();
}
END_TEST

static void pause_in_child(int fd, int outlives)
{
    struct epx_process process;
    pthread_t thread;

    epx_process_self(&process);
    if (outlives)
        pthread_create(&thread, NULL, (void *(*)(void *))(void (*)(void))pause, NULL);
    if (write(fd, &process, sizeof(process)) != sizeof(process))
        _exit(1);
    if (outlives)
        pthread_exit(NULL);
    for (;;)
        pause();
}

/* Starts a process that waits; with outlives its first thread ends, and another one waits. */
static pid_t start_process(struct epx_process *process, int outlives)
{
    int ends[2];
    pid_t child;

    if (pipe(ends) != 0)
        abort();
    child = fork();
    if (child == 0)
        pause_in_child(ends[1], outlives);
    EXPECT(read(ends[0], process, sizeof(*process)) == sizeof(*process), "no process");
    close(ends[0]);
    close(ends[1]);
    return child;
}

static void expect_kept(int wanted)
{
    epx_kept_memory_free();
    EXPECT(pretend_num_allocated() == wanted, "%d allocations, want %d", pretend_num_allocated(),
           wanted);
}

static void kill_process(pid_t child)
{
    siginfo_t info;

    kill(child, SIGKILL);
    waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT); /* it stays as a zombie */
}

START_TEST(memory_is_kept_until_processes_have_ended)
{
    const int before = pretend_num_allocated();
    struct epx_process processes[2];
    pid_t children[2] = {start_process(&processes[0], 0), start_process(&processes[1], 1)};
    void *memory;

    suite_sleep_ms(20); /* the first thread ends */
    cudaMalloc(&memory, 1);
    epx_kept_memory_add(0, memory, 1, processes, 2);
    expect_kept(before + 1);
    kill(children[0], SIGSTOP);
    expect_kept(before + 1);
    kill_process(children[0]);
    expect_kept(before + 1);
    kill_process(children[1]);
    expect_kept(before);
    for (int i = 0; i < 2; i++)
        waitpid(children[i], NULL, 0);
    EXPECT(epx_process_is_gone(&processes[0]), "a process that ended is there");
    processes[0].id = getpid(); /* an id that is used again */
    EXPECT(epx_process_is_gone(&processes[0]), "a process of this id started later");
    processes[1] = (struct epx_process){0};
    EXPECT(!epx_process_is_gone(&processes[1]), "a process of which nothing is known is gone");
    cudaMalloc(&memory, 1);
    epx_kept_memory_add(0, memory, 1, processes, 1);
    expect_kept(before);
}
END_TEST

/* The last test leaves what it has. */
static void add_ends(Suite *suite)
{
    TCase *processes = tcase_create("processes"), *lost = tcase_create("lost");

    tcase_add_test(processes, memory_is_kept_until_processes_have_ended);
    suite_add_tcase(suite, processes);
    tcase_add_checked_fixture(lost, open_transport, NULL);
    tcase_add_test(lost, who_goes_on_without_others_frees_alone);
    suite_add_tcase(suite, lost);
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("windows that ranks map from each other");
    TCase *tcase = tcase_create("ipc");

    pretend_gpu(0, SMS);
    tcase_add_checked_fixture(tcase, open_transport, close_transport);
    tcase_add_test(tcase, every_rank_reaches_every_window);
    tcase_add_test(tcase, freed_memory_is_given_back_by_all);
    tcase_add_loop_test(tcase, what_one_rank_cannot_have_none_has, 0, 8);
    tcase_add_test(tcase, gpus_must_be_in_reach_or_shared);
    tcase_add_test(tcase, nodes_are_not_crossed);
    suite_add_tcase(suite, tcase);
    add_ends(suite);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_ucx_device.c - messages that UCX moves between device memories, with the real UCX but
 * without GPUs: host memory stands for device memory, and pretend_copies.c has the calls of CUDA.
 * Exchanges have messages of all lengths, whose bytes are compared.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/status.h"
#include "coll/device/device.h"
#include "support/suite.h"
#include "transport/ucx/transport_ucx_device.h"
#include "unit/transport/device_messages.h"

enum { EXCHANGES = 40, SMS = 132, WINDOW_BYTES = 100000 };
#define SECONDS 60.0

static const struct epx_transport_ops *const ops = &epx_transport_ucx_device;
static EPX_Comm comm;
static struct epx_transport transport;
static void *state;
static int num_allocated; /* allocated and not yet freed */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = malloc(bytes);
    num_allocated += *memory != NULL;
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    num_allocated -= memory != NULL;
    free(memory);
    return cudaSuccess;
}

static void open_transport(void)
{
    pretend_gpu(suite_rank, SMS);
    comm = suite_comm("epx_transport", "mpi", "epx_timeout_ms", "20000", NULL);
    state = epx_memory_zeroed(1, ops->state_bytes);
    transport = (struct epx_transport){.comm = comm, .ops = ops, .state = state};
    EXPECT_CODE(epx_ucx_device_create(&transport, UCS_MEMORY_TYPE_HOST), EPX_SUCCESS);
    messages_open(ops, state);
    SETTLE();
}

static void close_transport(void)
{
    double start = suite_seconds(), took;

    messages_drain(); /* as the proxy does */
    ops->free(state);
    free(state);
    took = suite_seconds() - start;
    EXPECT(took < 5, "the end took %.1f s", took);
    EXPECT(num_allocated == 0, "%d windows are not freed", num_allocated);
    messages_close();
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static void nap(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&time, NULL);
}

/* Now and then a rank comes late, and others are an exchange ahead. */
START_TEST(every_byte_comes_where_it_belongs)
{
    int missing = 0;

    for (uint64_t number = 1; number <= EXCHANGES && !missing; number++) {
        messages_prepare(number);
        if ((int)(number / 4) % suite_size == suite_rank && number % 4 == 0)
            nap(0.01);
        messages_start();
        missing = !EXPECT(messages_go_on(SECONDS), "exchange %llu", (unsigned long long)number);
        messages_check(number);
    }
    SETTLE();
}
END_TEST

/* The last rank has no bytes for the others, nor they for it: it comes when they are through. */
START_TEST(a_rank_that_takes_no_part_is_not_waited_for)
{
    int last = suite_size - 1;

    messages_prepare(11);
    for (int r = 0; r < suite_size; r++)
        if (r == last || suite_rank == last)
            messages_exchange->message[r] = (struct epx_message){0};
    if (suite_rank == last)
        MPI_Barrier(MPI_COMM_WORLD);
    messages_start();
    EXPECT(messages_go_on(SECONDS), "the exchange");
    if (suite_rank != last)
        MPI_Barrier(MPI_COMM_WORLD);
    messages_check(11);
    SETTLE();
}
END_TEST

/* Late ranks still get the messages of ranks that have left. No SETTLE: ranks leave one by one. */
START_TEST(a_rank_may_leave_before_others_have_all)
{
    messages_prepare(5);
    if (suite_rank % 2)
        nap(0.1);
    messages_start();
    if (suite_rank % 2)
        nap(0.1);
    EXPECT(messages_go_on(SECONDS), "the exchange");
    messages_check(5);
}
END_TEST

START_TEST(who_does_not_answer_is_behind_all_others)
{
    int last = suite_size - 1;

    messages_prepare(3);
    if (suite_rank != last) {
        messages_start();
        EXPECT(!messages_go_on(0.3), "without the last rank");
        messages_drain();
        messages_expect_behind(last);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == last)
        messages_start();
    EXPECT(messages_go_on(SECONDS), "the last rank came late");
    messages_check(3);
    SETTLE();
}
END_TEST

/* The transport is freed while the rank is still silent. */
START_TEST(an_abort_waits_for_nobody)
{
    double start, took;

    messages_prepare(7);
    if (suite_rank != suite_size - 1) {
        messages_start();
        EXPECT(!messages_go_on(0.1), "without the last rank");
    }
    start = suite_seconds();
    ops->exchanges->abort(state);
    took = suite_seconds() - start;
    EXPECT(took < 1, "the abort took %.1f s", took);
    SETTLE();
}
END_TEST

/* A message comes where none is awaited, and a shorter one than is awaited. */
START_TEST(a_message_of_another_length_is_told)
{
    int last = suite_size - 1;
    struct epx_message *message;
    char who[32];

    messages_prepare(9);
    for (int r = 0; r < suite_size; r++) {
        message = &messages_exchange->message[r];
        message->send_bytes = message->recv_bytes = _i ? 3000 : 0;
    }
    if (suite_rank == 0)
        messages_exchange->message[last].send_bytes = 3000; /* so that both take part */
    if (suite_rank == last) {
        messages_exchange->message[0].recv_bytes = 3000;
        messages_exchange->message[0].send_bytes = 1000;
    }
    messages_start();
    if (suite_rank == 0) {
        snprintf(who, sizeof(who), "rank %d", last);
        messages_fail(SECONDS);
        EXPECT(strstr(epx_status_message(), who), "told: %s", epx_status_message());
        ops->exchanges->abort(state);
    } else {
        EXPECT(messages_go_on(SECONDS), "the exchange");
    }
    SETTLE();
}
END_TEST

static struct epx_window *make_window(size_t bytes)
{
    struct epx_window *window = NULL;

    EXPECT_CODE(ops->window_create(state, bytes, &window), EPX_SUCCESS);
    EXPECT(window && window->own_bytes == bytes, "a window of %zu bytes", bytes);
    return window;
}

START_TEST(windows_use_the_memory_of_freed_ones)
{
    struct epx_window *first = make_window(WINDOW_BYTES), *other;
    char *memory = first->own;
    int before = num_allocated;

    ops->window_free(state, first);
    other = make_window(WINDOW_BYTES);
    EXPECT(other->own != memory, "a window that may be in use was given away");
    ops->reclaim(state);
    first = make_window(WINDOW_BYTES - 1000);
    EXPECT(first->own == memory, "the memory was not kept");
    EXPECT(num_allocated == before + 1, "%d allocations", num_allocated - before);
    ops->window_free(state, first);
    ops->reclaim(state);
    first = make_window(WINDOW_BYTES / 4);
    EXPECT(first->own != memory, "much more memory than needed");
    ops->window_free(state, first);
    ops->window_free(state, other);
    SETTLE();
}
END_TEST

/* UCX_TLS can leave device memory out; then the way through the hosts is taken. */
START_TEST(a_library_without_device_memory_is_not_used)
{
    char why[EPX_WHY_MAX] = "";
    int usable;

    setenv("UCX_TLS", "^cuda", 1);
    usable = ops->usable(comm, why);
    unsetenv("UCX_TLS");
    EXPECT(!usable && strstr(why, "no device memory"), "usable: %d (%s)", usable, why);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("messages between devices by UCX");
    TCase *tcase = tcase_create("ucx");

    tcase_add_checked_fixture(tcase, open_transport, close_transport);
    tcase_add_test(tcase, every_byte_comes_where_it_belongs);
    tcase_add_test(tcase, a_rank_may_leave_before_others_have_all);
    tcase_add_test(tcase, windows_use_the_memory_of_freed_ones);
    tcase_add_test(tcase, a_library_without_device_memory_is_not_used);
    if (suite_size > 1) {
        tcase_add_test(tcase, who_does_not_answer_is_behind_all_others);
        tcase_add_test(tcase, an_abort_waits_for_nobody);
        tcase_add_test(tcase, a_rank_that_takes_no_part_is_not_waited_for);
        tcase_add_loop_test(tcase, a_message_of_another_length_is_told, 0, 2);
    }
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_bounce.c - messages of device memory through stages on the hosts, with the real host
 * transport but without GPUs: pretend_copies.c has the calls of CUDA, pretend_copying.c makes the
 * copies that kernels make. Exchanges have messages of all lengths, whose bytes are compared. What
 * a rank sends to itself is left out: the proxy asks for its copy.
 */
#include <stdlib.h>
#include <string.h>

#include "coll/device/device.h"
#include "support/suite.h"
#include "unit/transport/device_messages.h"

enum { EXCHANGES = 40, SMS = 132 };
#define SECONDS 60.0

static const struct epx_transport_ops *const ops = &epx_transport_bounce;
static EPX_Comm comm;
static struct epx_transport transport;
static void *state;

static void open_transport(void)
{
    pretend_gpu(suite_rank, SMS);
    comm = suite_comm("epx_transport", "mpi", "epx_window_bytes", "65536", NULL);
    state = epx_memory_zeroed(1, ops->state_bytes);
    transport = (struct epx_transport){.comm = comm, .ops = ops, .state = state};
    EXPECT_CODE(ops->create(&transport), EPX_SUCCESS);
    messages_open(ops, state);
    SETTLE();
}

static void close_transport(void)
{
    messages_close();
    ops->free(state);
    free(state);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

START_TEST(every_byte_comes_where_it_belongs)
{
    int missing = 0;

    for (uint64_t number = 1; number <= EXCHANGES && !missing; number++) {
        messages_prepare(number);
        messages_start();
        missing = !EXPECT(messages_go_on(SECONDS), "exchange %llu", (unsigned long long)number);
        messages_drain();
        messages_check(number);
    }
    SETTLE();
}
END_TEST

/*
 * The last rank does not answer from the first round on, or from a later one that it helped to come
 * to. Where all blocks are messages, other ranks may be kept in the round before, as their sends
 * are.
 */
START_TEST(who_does_not_answer_is_behind_all_others)
{
    int last = suite_size - 1, passes = 40 * _i, queued = 0, moved;

    messages_prepare(3);
    if (suite_rank != last || passes)
        messages_start();
    for (int i = 0; suite_rank == last && i < passes && !queued; i++) {
        EXPECT_CODE(ops->exchanges->queued(state, &queued, &moved), EPX_SUCCESS);
        messages_drain();
    }
    if (suite_rank != last && !messages_go_on(0.3)) {
        messages_drain();
        messages_expect_behind(last);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == last && !passes)
        messages_start();
    EXPECT(messages_go_on(SECONDS), "the last rank came late");
    messages_drain();
    messages_check(3);
    SETTLE();
}
END_TEST

/* All ranks have one GPU, on which the kernels of all can wait at once, or cannot. */
START_TEST(ranks_that_share_a_gpu_must_fit_there)
{
    int wanted = 32 * suite_size, fits;
    char why[EPX_WHY_MAX] = "";

    pretend_gpu(0, _i ? wanted : wanted - 1);
    fits = ops->usable(comm, why);
    EXPECT(fits == (_i || suite_size == 1), "usable: %d (%s)", fits, why);
    EXPECT(fits || strstr(why, "epx_max_sms"), "why: %s", why);
    SETTLE();
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("messages through stages on the hosts");
    TCase *tcase = tcase_create("bounce");
    int mapped = !getenv("EPX_RANKS_PER_NODE");

    tcase_add_checked_fixture(tcase, open_transport, close_transport);
    tcase_add_test(tcase, every_byte_comes_where_it_belongs);
    tcase_add_loop_test(tcase, who_does_not_answer_is_behind_all_others, 0, mapped ? 5 : 1);
    if (mapped)
        tcase_add_loop_test(tcase, ranks_that_share_a_gpu_must_fit_there, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

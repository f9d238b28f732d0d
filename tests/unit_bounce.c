/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_bounce.c - messages of device memory through stages on the hosts, with the host transport
 * that is used but without GPUs: pretend_copies.c has what is called of CUDA. Exchanges of messages
 * of all lengths, whose bytes are compared. What a rank sends to itself is the proxy's.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "coll/cuda_errors.h"
#include "coll/device.h"
#include "coll/pieces.h"
#include "data.h"
#include "pretend_copies.h"
#include "suite.h"

enum { WINDOW_BYTES = 65536, EXCHANGES = 40, MOST_BYTES = 200000, GAP = 64, SMS = 132 };
#define SECONDS 60.0

static const struct epx_transport_ops *const ops = &epx_transport_bounce;
static EPX_Comm comm;
static void *state;
static cudaStream_t stream;
static struct epx_exchange *exchange;
static uint64_t *arrived;
static char *buffer[2]; /* out, in: [size][MOST_BYTES + GAP] */

int epx_fail_cuda(cudaError_t error, const char *call)
{
    return epx_fail(EPX_ERR_CUDA, "%s: %s", call, cudaGetErrorString(error));
}

static void open_transport(void)
{
    size_t ranks = (size_t)suite_size;

    pretend_gpu(suite_rank, SMS);
    comm = suite_comm("epx_transport", "mpi", "epx_window_bytes", "65536", NULL);
    EXPECT_CODE(ops->create(comm, &state), EPX_SUCCESS);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    exchange = calloc(1, sizeof(*exchange) + ranks * sizeof(*exchange->message));
    arrived = calloc(ranks, sizeof(*arrived));
    for (int i = 0; i < 2; i++)
        buffer[i] = malloc(ranks * (MOST_BYTES + GAP));
    SETTLE();
}

static void close_transport(void)
{
    for (int i = 0; i < 2; i++)
        free(buffer[i]);
    free(arrived);
    free(exchange);
    cudaStreamDestroy(stream);
    ops->free(state);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

/* Most are short, as between ranks that agree; some need many rounds, and some none. */
static int64_t bytes_of(uint64_t number, int from, int to)
{
    uint64_t hash = data_hash(number, (uint64_t)from, (uint64_t)to);

    switch (hash % 4) {
    case 0: return 0;
    case 1: return 40;
    case 2: return (int64_t)(hash / 4 % 5000);
    default: return (int64_t)(hash / 4 % (MOST_BYTES + 1));
    }
}

static char byte_of(uint64_t number, int from, int to, int64_t i)
{
    return (char)data_hash(number * 64 + (uint64_t)from, (uint64_t)to, (uint64_t)i);
}

static char *part_of(int side, int rank)
{
    return buffer[side] + (size_t)rank * (MOST_BYTES + GAP);
}

static void prepare(uint64_t number)
{
    exchange->number = number;
    exchange->send = buffer[0];
    exchange->recv = buffer[1];
    exchange->stamp = (char *)&exchange->number;
    exchange->arrived = (char *)arrived;
    memset(buffer[1], 0x5a, (size_t)suite_size * (MOST_BYTES + GAP));
    for (int r = 0; r < suite_size; r++) {
        struct epx_message *message = &exchange->message[r];

        message->send_at = message->recv_at = r * (int64_t)(MOST_BYTES + GAP);
        message->send_bytes = bytes_of(number, suite_rank, r);
        message->recv_bytes = bytes_of(number, r, suite_rank);
        for (int64_t i = 0; i < message->send_bytes; i++)
            part_of(0, r)[i] = byte_of(number, suite_rank, r, i);
    }
}

static void check(uint64_t number)
{
    for (int r = 0; r < suite_size; r++) {
        const char *part = part_of(1, r);
        int64_t bytes = r == suite_rank ? 0 : exchange->message[r].recv_bytes, wrong = 0;

        for (int64_t i = 0; i < bytes; i++)
            wrong += part[i] != byte_of(number, r, suite_rank, i);
        for (int64_t i = bytes; i < MOST_BYTES + GAP; i++)
            wrong += part[i] != 0x5a;
        EXPECT(wrong == 0, "%lld of %lld bytes from rank %d in exchange %llu", (long long)wrong,
               (long long)bytes, r, (unsigned long long)number);
    }
}

/* Until all is queued, or the time is over. */
static int go_on(double seconds)
{
    double end = suite_seconds() + seconds;
    int queued = 0, moved = 0, rc = EPX_SUCCESS;

    while (rc == EPX_SUCCESS && !queued && suite_seconds() < end) {
        rc = ops->queued(state, &queued, &moved);
        if (!moved)
            sched_yield();
    }
    EXPECT_CODE(rc, EPX_SUCCESS);
    return queued;
}

START_TEST(every_byte_comes_where_it_belongs)
{
    int missing = 0;

    for (uint64_t number = 1; number <= EXCHANGES && !missing; number++) {
        prepare(number);
        EXPECT_CODE(ops->exchange(state, exchange, stream), EPX_SUCCESS);
        missing = !EXPECT(go_on(SECONDS), "exchange %llu", (unsigned long long)number);
        pretend_drain();
        check(number);
    }
    EXPECT(pretend_num_unpinned() == 0, "%d copies of pageable memory", pretend_num_unpinned());
    SETTLE();
}
END_TEST

static void expect_behind(int silent)
{
    for (int r = 0; r < suite_size; r++)
        EXPECT(r == suite_rank || r == silent || arrived[r] > arrived[silent],
               "rank %d at %llu, rank %d at %llu", r, (unsigned long long)arrived[r], silent,
               (unsigned long long)arrived[silent]);
}

/*
 * From the first round on, or from some other that the last rank helped to come to; by messages
 * alone others may be kept in the round before, as their sends are.
 */
START_TEST(who_does_not_answer_is_behind_all_others)
{
    int last = suite_size - 1, passes = 40 * _i, queued = 0, moved;

    prepare(3);
    if (suite_rank != last || passes)
        EXPECT_CODE(ops->exchange(state, exchange, stream), EPX_SUCCESS);
    for (int i = 0; suite_rank == last && i < passes && !queued; i++)
        EXPECT_CODE(ops->queued(state, &queued, &moved), EPX_SUCCESS);
    if (suite_rank != last && !go_on(0.3)) {
        pretend_drain();
        expect_behind(last);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (suite_rank == last && !passes)
        EXPECT_CODE(ops->exchange(state, exchange, stream), EPX_SUCCESS);
    EXPECT(go_on(SECONDS), "the last rank came late");
    pretend_drain();
    check(3);
    SETTLE();
}
END_TEST

/* All ranks have one GPU, which is large enough for their waits or is not. */
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

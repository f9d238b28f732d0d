/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_ring.c - the rings of the direct algorithms: every rank sends to the next rank and receives
 * from the one before, which is itself if it is alone.
 */
#include <sched.h>
#include <string.h>

#include "coll/direct/direct.h"
#include "support/operation.h"
#include "support/suite.h"

enum { WINDOW_BYTES = 65536 };

static EPX_Comm comm;
static struct epx_direct *direct;
static int next, previous;

static void open_comm(void)
{
    comm = suite_comm("epx_transport", "shm", "epx_window_bytes", "65536", NULL);
    direct = comm->transport->direct;
    next = (suite_rank + 1) % suite_size;
    previous = (suite_rank + suite_size - 1) % suite_size;
}

/* Checks that the rings were left as they must be between operations. */
static void close_comm(void)
{
    SETTLE();
    layer_works(comm);
    EXPECT_CODE(EPX_Comm_free(&comm), EPX_SUCCESS);
    SETTLE();
}

static void fill(char *slot, int rank, int64_t number)
{
    for (int64_t i = 0; i < direct->slot_bytes; i++)
        slot[i] = (char)data_hash((uint64_t)rank, (uint64_t)number, (uint64_t)i);
}

static int holds(const char *slot, int rank, int64_t number)
{
    for (int64_t i = 0; i < direct->slot_bytes; i++)
        if (slot[i] != (char)data_hash((uint64_t)rank, (uint64_t)number, (uint64_t)i))
            return EXPECT(0, "byte %lld of slot %lld from rank %d", (long long)i, (long long)number,
                          rank);
    return 1;
}

static int send_one(int64_t number)
{
    char *slot = epx_ring_claim(direct, next);

    if (!slot)
        return 0;
    fill(slot, suite_rank, number);
    epx_ring_push(direct, next);
    epx_ring_publish(direct, next);
    return 1;
}

static int receive_one(int64_t number)
{
    const char *slot = epx_ring_peek(direct, previous);

    if (!slot)
        return 0;
    holds(slot, previous, number);
    epx_ring_pop(direct, previous);
    epx_ring_release(direct, previous);
    return 1;
}

/* Sends and receives n slots, as fast as the ring lets; no rank is an operation ahead. */
static void exchange_slots(int64_t n)
{
    int64_t sent = 0, received = 0;
    double start = suite_seconds();

    while ((sent < n || received < n) && suite_seconds() - start < 20) {
        int put = sent < n && send_one(sent);
        int got = received < n && receive_one(received);

        sent += put;
        received += got;
        if (!put && !got)
            sched_yield();
    }
    EXPECT(sent == n && received == n, "%lld sent, %lld received of %lld", (long long)sent,
           (long long)received, (long long)n);
    EXPECT(!epx_ring_peek(direct, previous), "something is left");
    SETTLE();
}

START_TEST(slots_are_whole_lines_and_two_fit)
{
    static const int64_t rows[] = {0, 1, 64, 65, 20000, 32768, 40000, 1000000};

    for (int i = 0; i < 8; i++) {
        epx_direct_begin(direct, rows[i]);
        EXPECT(direct->slot_bytes % EPX_LINE_BYTES == 0 && direct->slot_bytes > 0,
               "slots of %lld bytes", (long long)direct->slot_bytes);
        EXPECT(direct->slot_bytes >= direct->cut.bytes, "a segment does not fit its slot");
        EXPECT(direct->num_slots >= 2, "%lld slots", (long long)direct->num_slots);
        EXPECT(direct->num_slots * direct->slot_bytes <= direct->ring_bytes, "past the ring");
        EXPECT(direct->ring_bytes * suite_size <= WINDOW_BYTES || suite_size > 4,
               "rings of %lld bytes", (long long)direct->ring_bytes);
    }
}
END_TEST

START_TEST(slots_arrive_in_order_and_wrap)
{
    epx_direct_begin(direct, 900);
    exchange_slots(5 * direct->num_slots + 3);
}
END_TEST

START_TEST(a_slot_shows_only_when_published)
{
    epx_direct_begin(direct, 900);
    EXPECT(!epx_ring_peek(direct, previous), "an empty ring has a slot");
    SETTLE();
    for (int i = 0; i < 2; i++) {
        fill(epx_ring_claim(direct, next), suite_rank, i);
        epx_ring_push(direct, next);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(!epx_ring_peek(direct, previous), "a slot that was not published");
    SETTLE();
    epx_ring_publish(direct, next);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(receive_one(0) && receive_one(1), "slots are missing");
    EXPECT(!receive_one(2), "one too many");
}
END_TEST

/* A slot that was read is free again only when it was released. */
START_TEST(a_full_ring_takes_no_more)
{
    int64_t sent = 0;

    epx_direct_begin(direct, 5000);
    while (sent < 10000 && send_one(sent))
        sent++;
    EXPECT(sent == direct->num_slots, "%lld slots, not %lld", (long long)sent,
           (long long)direct->num_slots);
    SETTLE();
    holds(epx_ring_peek(direct, previous), previous, 0);
    epx_ring_pop(direct, previous);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(!epx_ring_claim(direct, next), "a slot that was not released");
    SETTLE();
    epx_ring_release(direct, previous);
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT(send_one(sent), "no slot after a release");
    EXPECT(!epx_ring_claim(direct, next), "one too many");
    MPI_Barrier(MPI_COMM_WORLD);
    for (int64_t i = 1; i <= sent; i++)
        EXPECT(receive_one(i), "slot %lld is missing", (long long)i);
}
END_TEST

START_TEST(slots_may_have_another_size_in_each_operation)
{
    static const int64_t rows[] = {900, 64, 7000, 1, 100000, 130, 0, 4097};

    for (int i = 0; i < 24; i++) {
        epx_direct_begin(direct, rows[i % 8]);
        exchange_slots(i % 5 ? direct->num_slots + i : 1);
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("ring");
    TCase *tcase = tcase_create("ring");

    tcase_add_checked_fixture(tcase, open_comm, close_comm);
    tcase_add_test(tcase, slots_are_whole_lines_and_two_fit);
    tcase_add_test(tcase, slots_arrive_in_order_and_wrap);
    tcase_add_test(tcase, a_slot_shows_only_when_published);
    tcase_add_test(tcase, a_full_ring_takes_no_more);
    tcase_add_test(tcase, slots_may_have_another_size_in_each_operation);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

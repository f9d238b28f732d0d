/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_exchange.c - the ring between kernels and the proxy, without a GPU: for each of several
 * ranks one thread does what kernels do, another what the proxy does.
 */
#include "kernels/ring.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/suite.h"

enum { RANKS = 3, EXCHANGES = 2000, MOST_BYTES = 96, SHARE = 128, SECONDS = 60 };

/* What one proxy leaves for another. */
struct box {
    uint64_t number; /* released after the bytes; the reader sets taken to it */
    uint64_t taken;
    char bytes[MOST_BYTES];
};

struct rank {
    int rank;
    char *ring;
    uint64_t released;
    char outgoing[RANKS * SHARE], incoming[RANKS * SHARE];
    int64_t wrong;
    pthread_t kernels, proxy;
};

static struct rank ranks[RANKS];
static struct box boxes[RANKS][RANKS]; /* from, to */
static time_t end;

static int64_t bytes_of(uint64_t number, int from, int to)
{
    return (int64_t)((number * 31 + (uint64_t)from * 7 + (uint64_t)to * 13) % (MOST_BYTES + 1));
}

static char byte_of(uint64_t number, int from, int to, int64_t i)
{
    return (char)(number * 5 + (uint64_t)from * 3 + (uint64_t)to + (uint64_t)i);
}

/* Waits for a word; returns whether it came to the value before the test's time was over. */
static int await(const uint64_t *word, uint64_t value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) {
        if (time(NULL) > end)
            return 0;
        sched_yield();
    }
    return 1;
}

static void fill(struct rank *r, uint64_t number)
{
    struct epx_exchange *slot = epx_ring_slot(r->ring, RANKS, number);

    slot->send = r->outgoing;
    slot->recv = r->incoming;
    for (int d = 0; d < RANKS; d++) {
        slot->message[d] = (struct epx_message){d * SHARE, bytes_of(number, r->rank, d), d * SHARE,
                                                bytes_of(number, d, r->rank)};
        for (int64_t i = 0; i < bytes_of(number, r->rank, d); i++)
            r->outgoing[d * SHARE + i] = byte_of(number, r->rank, d, i);
    }
    epx_ring_post(slot, number);
}

static void check(struct rank *r, uint64_t number)
{
    for (int s = 0; s < RANKS; s++)
        for (int64_t i = 0; i < bytes_of(number, s, r->rank); i++)
            r->wrong += r->incoming[s * SHARE + i] != byte_of(number, s, r->rank, i);
    memset(r->incoming, 0x5a, sizeof(r->incoming));
}

static void *run_kernels(void *arg)
{
    struct rank *r = arg;

    for (uint64_t n = 1; n <= EXCHANGES; n++) {
        fill(r, n);
        if (!await(&r->released, n)) {
            r->wrong++;
            break;
        }
        check(r, n);
    }
    return NULL;
}

static int send_to(const struct epx_exchange *exchange, const struct rank *r, int to)
{
    const struct epx_message *message = &exchange->message[to];
    struct box *box = &boxes[r->rank][to];

    if (!await(&box->taken, exchange->number - 1))
        return 0;
    memcpy(box->bytes, exchange->send + message->send_at, (size_t)message->send_bytes);
    __atomic_store_n(&box->number, exchange->number, __ATOMIC_RELEASE);
    return 1;
}

static int take_from(const struct epx_exchange *exchange, const struct rank *r, int from)
{
    const struct epx_message *message = &exchange->message[from];
    struct box *box = &boxes[from][r->rank];

    if (!await(&box->number, exchange->number))
        return 0;
    memcpy(exchange->recv + message->recv_at, box->bytes, (size_t)message->recv_bytes);
    __atomic_store_n(&box->taken, exchange->number, __ATOMIC_RELEASE);
    return 1;
}

static const struct epx_exchange *await_exchange(const struct rank *r, uint64_t number)
{
    const struct epx_exchange *exchange;

    while (!(exchange = epx_ring_look(r->ring, RANKS, number)) && time(NULL) <= end)
        sched_yield();
    return exchange;
}

static void *run_proxy(void *arg)
{
    struct rank *r = arg;
    int fine = 1;

    for (uint64_t n = 1; fine && n <= EXCHANGES; n++) {
        const struct epx_exchange *exchange = await_exchange(r, n);

        fine = exchange != NULL;
        for (int i = 0; fine && i < RANKS; i++)
            fine = send_to(exchange, r, i);
        for (int i = 0; fine && i < RANKS; i++)
            fine = take_from(exchange, r, i);
        if (fine)
            __atomic_store_n(&r->released, n, __ATOMIC_RELEASE);
    }
    return NULL;
}

START_TEST(every_exchange_moves_what_its_kernel_posted)
{
    end = time(NULL) + SECONDS;
    for (int i = 0; i < RANKS; i++) {
        ranks[i].rank = i;
        ranks[i].ring = calloc(1, epx_ring_bytes(RANKS));
        ck_assert_ptr_nonnull(ranks[i].ring);
        ck_assert_int_eq(pthread_create(&ranks[i].kernels, NULL, run_kernels, &ranks[i]), 0);
        ck_assert_int_eq(pthread_create(&ranks[i].proxy, NULL, run_proxy, &ranks[i]), 0);
    }
    for (int i = 0; i < RANKS; i++) {
        pthread_join(ranks[i].kernels, NULL);
        pthread_join(ranks[i].proxy, NULL);
        ck_assert_int_eq(ranks[i].wrong, 0);
        ck_assert_uint_eq(ranks[i].released, EXCHANGES);
        free(ranks[i].ring);
    }
}
END_TEST

START_TEST(slots_of_one_ring_do_not_overlap)
{
    size_t bytes = epx_ring_bytes(RANKS), message = sizeof(struct epx_message);
    char *ring = calloc(1, bytes);

    for (uint64_t n = 0; n < EPX_RING_SLOTS; n++) {
        char *slot = (char *)epx_ring_slot(ring, RANKS, n);
        char *behind = (char *)epx_ring_slot(ring, RANKS, n)->message + RANKS * message;

        ck_assert(slot >= ring + EPX_RING_LINE && behind <= ring + bytes);
        ck_assert(n == 0 || slot - (char *)epx_ring_slot(ring, RANKS, n - 1) >= behind - slot);
        ck_assert_ptr_eq(epx_ring_slot(ring, RANKS, n + EPX_RING_SLOTS), slot);
    }
    free(ring);
}
END_TEST

START_TEST(an_exchange_is_seen_only_under_its_own_number)
{
    char *ring = calloc(1, epx_ring_bytes(RANKS));

    ck_assert_ptr_null(epx_ring_look(ring, RANKS, 1));
    epx_ring_post(epx_ring_slot(ring, RANKS, 1), 1);
    ck_assert_ptr_nonnull(epx_ring_look(ring, RANKS, 1));
    ck_assert_ptr_null(epx_ring_look(ring, RANKS, 1 + EPX_RING_SLOTS));
    free(ring);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *suite = suite_create("exchange");
    TCase *tcase = tcase_create("exchange");

    tcase_add_test(tcase, every_exchange_moves_what_its_kernel_posted);
    tcase_add_test(tcase, slots_of_one_ring_do_not_overlap);
    tcase_add_test(tcase, an_exchange_is_seen_only_under_its_own_number);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    return suite_main(&argc, &argv, make_suite);
}

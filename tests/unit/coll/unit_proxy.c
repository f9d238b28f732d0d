/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit_proxy.c - the life of the proxy, without a GPU. In this process each of three ranks has a
 * proxy, a stream of pretend_streams.c and a thread that does what kernels do: it posts exchanges
 * and waits until they are released. The transport leaves messages in boxes, one for each pair of
 * ranks, and moves nothing from a rank to itself: that the proxy has done before all that the
 * transport queues. One transport has no stream: the thread of the kernels makes its copies.
 */
#include "coll/device/staged/proxy.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/device/device.h"
#include "core/progress.h"
#include "kernels/ring.h"
#include "pretend/pretend_copying.h"
#include "pretend/pretend_streams.h"
#include "support/fault.h"
#include "support/suite.h"
#include "transport/cuda/asked_copies.h"

enum { RANKS = 3, EXCHANGES = 1500, MOST_BYTES = 96, SHARE = 128, SECONDS = 60, FOREVER = 1 << 30 };
#define DONE UINT64_MAX
enum { BOUND_MS = 300, ABORT_NS = 2000000, SEEN_AGAIN = 20, LOOKS_AT_IDLE = 100 };

/* What one rank leaves for another. */
struct box {
    uint64_t number; /* released after the bytes; the reader sets taken to it */
    uint64_t taken;
    char bytes[MOST_BYTES];
};

/* A message on its way in or out, as work on a stream. */
struct passage {
    struct rank *rank;
    struct box *box;
    uint64_t number;
    char *at;
    size_t bytes;
};

struct rank {
    int number;
    struct epx_comm comm;
    struct epx_transport transport;
    struct epx_device device;
    struct epx_proxy *proxy;

    char outgoing[RANKS * SHARE], incoming[RANKS * SHARE];
    atomic_int wrong;
    uint64_t last; /* the last exchange that kernels post */
    uint64_t done;
    atomic_int stopped;  /* kernels saw the proxy's stop */
    atomic_int given_up; /* what the abort word tells kernels */
    pthread_t kernels;

    struct passage passages[2 * RANKS];
    struct epx_copies copies;
    uint64_t asked[2 * RANKS]; /* copies that are made once this passage's is; 0 = it was not asked
                                  for, DONE = it is over */
    cudaStream_t stream;
    int num_queued;
    atomic_ullong num_exchanges; /* exchanges that the proxy handed over */
    uint64_t fails_at;           /* exchange that the transport refuses; 0 = none */
    atomic_int hangs, aborts;
    int stalls; /* queued() gets stuck halfway */
};

static struct rank *ranks;         /* [RANKS] */
static struct box (*boxes)[RANKS]; /* from, to */
static int scene_runs;             /* the proxies of these ranks have not been freed */
static time_t deadline;

static int64_t bytes_of(uint64_t number, int from, int to)
{
    return (int64_t)((number * 31 + (uint64_t)from * 7 + (uint64_t)to * 13) % (MOST_BYTES + 1));
}

static char byte_of(uint64_t number, int from, int to, int64_t i)
{
    return (char)(number * 5 + (uint64_t)from * 3 + (uint64_t)to + (uint64_t)i);
}

static int is_late(void)
{
    return time(NULL) > deadline;
}

/* Transport */

static void await_in_stream(const struct rank *rank, const uint64_t *word, uint64_t value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value && !rank->aborts && !is_late())
        sched_yield();
}

static void send_passage(void *argument)
{
    struct passage *passage = argument;
    struct box *box = passage->box;

    await_in_stream(passage->rank, &box->taken, passage->number - 1);
    if (passage->rank->aborts)
        return;
    memcpy(box->bytes, passage->at, passage->bytes);
    __atomic_store_n(&box->number, passage->number, __ATOMIC_RELEASE);
}

static void take_passage(void *argument)
{
    struct passage *passage = argument;
    struct box *box = passage->box;

    await_in_stream(passage->rank, &box->number, passage->number);
    if (passage->rank->aborts)
        return;
    memcpy(passage->at, box->bytes, passage->bytes);
    __atomic_store_n(&box->taken, passage->number, __ATOMIC_RELEASE);
}

/* Checks what a rank sends to itself: the proxy has queued that before. */
static void expect_own(void *argument)
{
    struct passage *passage = argument;
    struct rank *rank = passage->rank;
    ptrdiff_t at = passage->at - rank->outgoing;

    rank->wrong += memcmp(rank->incoming + at, passage->at, passage->bytes) != 0;
}

static void plan_passages(struct rank *rank, const struct epx_exchange *exchange)
{
    for (int r = 0; r < RANKS; r++) {
        const struct epx_message *message = &exchange->message[r];

        rank->passages[r] =
            (struct passage){rank, &boxes[rank->number][r], rank->num_exchanges,
                             exchange->send + message->send_at, (size_t)message->send_bytes};
        rank->passages[RANKS + r] =
            (struct passage){rank, &boxes[r][rank->number], rank->num_exchanges,
                             exchange->recv + message->recv_at, (size_t)message->recv_bytes};
    }
}

static void queue_next(struct rank *rank)
{
    int i = rank->num_queued++;

    if (i == rank->number)
        pretend_queue(rank->stream, expect_own, &rank->passages[i]);
    else if (i != RANKS + rank->number)
        pretend_queue(rank->stream, i < RANKS ? send_passage : take_passage, &rank->passages[i]);
}

static int begin_exchange(void *state, const struct epx_exchange *exchange, void *stream)
{
    struct rank *rank = state;

    rank->wrong += exchange->number != ++rank->num_exchanges;
    EPX_FAIL_IF(rank->fails_at == exchange->number, EPX_ERR_TRANSPORT, "the wire is cut");
    while (rank->hangs && !is_late())
        sched_yield();
    rank->stream = stream;
    rank->num_queued = 0;
    plan_passages(rank, exchange);
    return EPX_SUCCESS;
}

static int exchange_at_once(void *state, const struct epx_exchange *exchange, void *stream)
{
    struct rank *rank = state;

    EPX_TRY(begin_exchange(state, exchange, stream));
    while (rank->num_queued < 2 * RANKS)
        queue_next(rank);
    return EPX_SUCCESS;
}

static int queue_one(void *state, int *queued, int *moved)
{
    struct rank *rank = state;

    *queued = *moved = 0;
    if (rank->stalls && rank->num_queued == RANKS)
        return EPX_SUCCESS;
    queue_next(rank);
    *moved = 1;
    *queued = rank->num_queued == 2 * RANKS;
    return EPX_SUCCESS;
}

/* Counts aborts; returns so late that the stream goes on before. */
static void count_abort(void *state)
{
    const struct timespec time = {0, ABORT_NS};
    struct rank *rank = state;

    rank->aborts++;
    nanosleep(&time, NULL);
}

static struct epx_copies *copies_of(void *state)
{
    return &((struct rank *)state)->copies;
}

static int begin_copies(void *state, const struct epx_exchange *exchange, void *stream)
{
    struct rank *rank = state;

    rank->wrong += stream != NULL;
    memset(rank->asked, 0, sizeof(rank->asked));
    rank->asked[rank->number] = rank->asked[RANKS + rank->number] = DONE;
    return begin_exchange(state, exchange, stream);
}

/* Asks for a passage's copy once the box can be used; when it was made tells the other rank. */
static int pass_by_copy(struct rank *rank, int i)
{
    struct passage *passage = &rank->passages[i];
    struct box *box = passage->box;
    int in = i >= RANKS, queue = in ? EPX_COPY_IN : EPX_COPY_OUT;
    uint64_t *theirs = in ? &box->number : &box->taken, *ours = in ? &box->taken : &box->number;

    if (rank->asked[i] == DONE || __atomic_load_n(theirs, __ATOMIC_ACQUIRE) < passage->number - !in)
        return EPX_SUCCESS;
    if (!rank->asked[i]) {
        EPX_TRY(epx_copies_ask(&rank->copies, queue, in ? passage->at : box->bytes,
                               in ? box->bytes : passage->at, passage->bytes));
        rank->asked[i] = epx_copies_asked(&rank->copies, queue) + 1;
    }
    if (!epx_copies_made(&rank->copies, queue, rank->asked[i] - 1))
        return EPX_SUCCESS;
    rank->asked[i] = DONE;
    __atomic_store_n(ours, passage->number, __ATOMIC_RELEASE);
    return EPX_SUCCESS;
}

static int move_copies(void *state, int *queued, int *moved)
{
    struct rank *rank = state;
    struct epx_copies *copies = &rank->copies;
    uint64_t in = epx_copies_asked(copies, EPX_COPY_IN);

    *moved = 0;
    *queued = epx_copies_made(copies, EPX_COPY_IN, in); /* what the rank sends to itself */
    for (int i = 0; i < 2 * RANKS; i++) {
        EPX_TRY(pass_by_copy(rank, i));
        *queued &= rank->asked[i] == DONE;
    }
    return EPX_SUCCESS;
}

static const struct epx_exchange_ops exchanges_at_once = {.start = exchange_at_once,
                                                          .abort = count_abort};
static const struct epx_exchange_ops exchanges_one_by_one = {
    .start = begin_exchange, .queued = queue_one, .abort = count_abort};
static const struct epx_exchange_ops exchanges_by_copies = {
    .copies = copies_of, .start = begin_copies, .queued = move_copies, .abort = count_abort};
static const struct epx_transport_ops at_once = {.exchanges = &exchanges_at_once};
static const struct epx_transport_ops one_by_one = {.exchanges = &exchanges_one_by_one};
static const struct epx_transport_ops by_copies = {.exchanges = &exchanges_by_copies};

/* Kernels */

static void post(struct rank *rank, uint64_t number)
{
    struct epx_exchange *slot = epx_ring_slot(epx_proxy_ring(rank->proxy), RANKS, number);

    slot->send = rank->outgoing;
    slot->recv = rank->incoming;
    for (int d = 0; d < RANKS; d++) {
        slot->message[d] = (struct epx_message){d * SHARE, bytes_of(number, rank->number, d),
                                                d * SHARE, bytes_of(number, d, rank->number)};
        for (int64_t i = 0; i < bytes_of(number, rank->number, d); i++)
            rank->outgoing[d * SHARE + i] = byte_of(number, rank->number, d, i);
    }
    epx_ring_post(slot, number);
}

static int is_released(struct rank *rank, uint64_t number)
{
    struct epx_copy_queues *queues = epx_proxy_copies(rank->proxy);

    if (!queues)
        return __atomic_load_n(epx_proxy_released(rank->proxy), __ATOMIC_ACQUIRE) >= number;
    pretend_make_copies(queues, 0);
    return __atomic_load_n(&queues->over, __ATOMIC_ACQUIRE) >= number;
}

/* Waits for the release of an exchange. A stop counts even if the release has come: an abort may
 * have let that through. */
static int await_release(struct rank *rank, uint64_t number)
{
    const uint64_t *stop = epx_ring_stop(epx_proxy_ring(rank->proxy));

    while (!is_released(rank, number) && !rank->given_up &&
           !__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
        if (is_late()) {
            rank->wrong++;
            return 0;
        }
        sched_yield();
    }
    rank->stopped = __atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0;
    return !rank->stopped && !rank->given_up;
}

/* Checks messages, and that what lies behind each stayed as it was. */
static void check(struct rank *rank, uint64_t number)
{
    for (int s = 0; s < RANKS; s++)
        for (int64_t i = 0; i < SHARE; i++) {
            char wanted =
                i < bytes_of(number, s, rank->number) ? byte_of(number, s, rank->number, i) : 0x5a;

            rank->wrong += rank->incoming[s * SHARE + i] != wanted;
        }
    memset(rank->incoming, 0x5a, sizeof(rank->incoming));
}

static void *run_kernels(void *argument)
{
    struct rank *rank = argument;

    for (uint64_t n = 1; n <= rank->last; n++) {
        post(rank, n);
        if (!await_release(rank, n))
            break;
        check(rank, n);
        __atomic_store_n(&rank->done, n, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Scenes */

/* The threads of a test that failed still use its ranks, so those stay as they are. */
static void new_scene(void)
{
    if (!scene_runs) {
        free(ranks);
        free(boxes);
    }
    ranks = calloc(RANKS, sizeof(*ranks));
    boxes = calloc(RANKS, sizeof(*boxes));
    ck_assert(ranks && boxes);
    scene_runs = 1;
    deadline = time(NULL) + SECONDS;
    pretend_reset();
}

static void open_rank(int number, const struct epx_transport_ops *ops)
{
    struct rank *rank = &ranks[number];

    memset(rank, 0, sizeof(*rank));
    memset(rank->incoming, 0x5a, sizeof(rank->incoming));
    rank->number = rank->comm.rank = number;
    rank->comm.size = RANKS;
    rank->comm.params.timeout_ms = BOUND_MS;
    rank->transport.ops = ops;
    rank->transport.state = rank;
    rank->device.comm = &rank->comm;
    rank->device.transport = &rank->transport;
    rank->device.write_value = pretend_write;
    if (ops == &by_copies)
        ck_assert_int_eq(epx_copies_open(&rank->copies), EPX_SUCCESS);
}

static void open_all(const struct epx_transport_ops *ops)
{
    new_scene();
    for (int r = 0; r < RANKS; r++) {
        open_rank(r, ops);
        ck_assert_int_eq(epx_proxy_create(&ranks[r].device, &ranks[r].proxy), EPX_SUCCESS);
    }
}

static void start_kernels(uint64_t num_exchanges)
{
    for (int r = 0; r < RANKS; r++) {
        ranks[r].last = num_exchanges;
        ck_assert_int_eq(pthread_create(&ranks[r].kernels, NULL, run_kernels, &ranks[r]), 0);
    }
}

static void join_kernels(void)
{
    for (int r = 0; r < RANKS; r++) {
        pthread_join(ranks[r].kernels, NULL);
        ck_assert_int_eq(ranks[r].wrong, 0);
    }
}

static void free_all(void)
{
    for (int r = 0; r < RANKS; r++) {
        epx_proxy_free(ranks[r].proxy);
        epx_copies_close(&ranks[r].copies);
    }
    scene_runs = 0;
    ck_assert_int_eq(pretend_objects(), 0);
}

static void await_exchanges(uint64_t number)
{
    for (int r = 0; r < RANKS; r++)
        while (__atomic_load_n(&ranks[r].done, __ATOMIC_ACQUIRE) < number) {
            ck_assert(!is_late());
            sched_yield();
        }
}

static void await_handed(int rank, uint64_t number)
{
    while (ranks[rank].num_exchanges < number) {
        ck_assert(!is_late());
        sched_yield();
    }
}

static void await_aborts(void)
{
    for (int r = 0; r < RANKS; r++)
        while (!ranks[r].aborts) {
            ck_assert(!is_late());
            sched_yield();
        }
}

static void expect_every_byte(const struct epx_transport_ops *ops)
{
    open_all(ops);
    start_kernels(EXCHANGES);
    join_kernels();
    for (int r = 0; r < RANKS; r++) {
        ck_assert_uint_eq(ranks[r].done, EXCHANGES);
        ck_assert_uint_eq(ranks[r].num_exchanges, EXCHANGES);
    }
    free_all();
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(ranks[r].aborts, 0);
}

START_TEST(every_exchange_moves_what_its_kernel_posted)
{
    expect_every_byte(&at_once);
}
END_TEST

START_TEST(nothing_is_released_before_all_of_it_is_queued)
{
    expect_every_byte(&one_by_one);
}
END_TEST

START_TEST(kernels_make_every_copy_that_is_asked_for)
{
    expect_every_byte(&by_copies);
}
END_TEST

/* Ends the communicators while the ranks are at different places, in another order each turn. */
static void finish_in_the_middle(int turn, const struct epx_transport_ops *ops)
{
    open_all(ops);
    start_kernels(FOREVER);
    await_exchanges((uint64_t)turn % 7);
    for (int r = 0; r < RANKS; r++)
        ranks[(r + turn) % RANKS].comm.finished = EPX_ERR_TIMEOUT;
    await_aborts();
    join_kernels();
    for (int again = 0; again < 2; again++)
        for (int r = 0; r < RANKS; r++)
            epx_proxy_retire(ranks[r].proxy);
    free_all();
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(ranks[r].aborts, 1);
        ck_assert_int_eq(ranks[r].stopped, 1);
    }
}

START_TEST(a_finished_communicator_stops_kernels_and_aborts_once)
{
    static const struct epx_transport_ops *const ops[] = {&at_once, &one_by_one, &by_copies};

    for (int turn = 0; turn < SEEN_AGAIN; turn++)
        finish_in_the_middle(turn, ops[turn % 3]);
}
END_TEST

START_TEST(an_exchange_that_is_queued_in_part_is_never_released)
{
    open_all(&one_by_one);
    ranks[1].stalls = 1;
    start_kernels(1);
    pthread_join(ranks[0].kernels, NULL);
    pthread_join(ranks[2].kernels, NULL);
    ranks[1].comm.finished = EPX_ERR_TIMEOUT;
    pthread_join(ranks[1].kernels, NULL);
    ck_assert_uint_eq(*epx_proxy_released(ranks[1].proxy), 0);
    ck_assert_int_eq(ranks[1].stopped, 1);
    ck_assert_uint_eq(ranks[0].done + ranks[2].done, 2);
    free_all();
    ck_assert_int_eq(ranks[1].aborts, 1);
}
END_TEST

START_TEST(an_idle_proxy_sees_the_end_of_its_communicator)
{
    open_all(&at_once);
    for (int r = 0; r < RANKS; r++)
        ranks[r].comm.finished = EPX_ERR_TIMEOUT;
    await_aborts();
    free_all();
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(ranks[r].aborts, 1);
}
END_TEST

START_TEST(an_unused_proxy_is_freed_without_an_abort)
{
    open_all(&at_once);
    free_all();
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(ranks[r].aborts, 0);
    epx_proxy_note_stream(NULL, NULL);
    epx_proxy_retire(NULL);
    epx_proxy_free(NULL);
}
END_TEST

/* One rank's proxy ends, so the streams of the others wait for messages that never come. */
START_TEST(a_stream_that_waits_for_nobody_is_freed)
{
    open_all(&at_once);
    start_kernels(FOREVER);
    await_exchanges(5);
    epx_proxy_retire(ranks[1].proxy);
    await_handed(0, ranks[1].num_exchanges + 1);
    await_handed(2, ranks[1].num_exchanges + 1);
    for (int r = 0; r < RANKS; r++)
        ranks[r].given_up = 1;
    join_kernels();
    free_all();
    ck_assert_int_eq(ranks[0].aborts, 1);
    ck_assert_int_eq(ranks[2].aborts, 1);
}
END_TEST

/* When the thread of a proxy that hung ends at last, CUDA may have ended before it. */
START_TEST(a_proxy_that_hangs_is_not_waited_for)
{
    int64_t start, took;
    int calls;

    open_all(&at_once);
    ranks[1].hangs = 1;
    start_kernels(FOREVER);
    await_handed(1, 1);
    while (pretend_threads() < RANKS)
        ck_assert(!is_late());
    for (int r = 0; r < RANKS; r++)
        ranks[r].comm.finished = EPX_ERR_TIMEOUT;
    start = epx_now_ns();
    epx_proxy_retire(ranks[1].proxy);
    took = epx_now_ns() - start;
    ck_assert_int_eq(ranks[1].aborts, 0);
    ck_assert_int_ge(took, BOUND_MS * 1000000LL);
    calls = pretend_scope_calls();
    ranks[1].hangs = 0;
    join_kernels();
    epx_proxy_retire(ranks[1].proxy);
    ck_assert_int_eq(ranks[1].aborts, 1);
    ck_assert_int_eq(pretend_scope_calls(), calls);
    free_all();
}
END_TEST

static void await_failure(const struct rank *rank, const char *failure)
{
    while (!epx_proxy_failure(rank->proxy))
        ck_assert(!is_late());
    ck_assert_str_eq(epx_proxy_failure(rank->proxy), failure);
}

/* Ends the communicator after one proxy failed: kernels of other ranks learn of that by other
 * ways. */
static void end_after_failure(int rank)
{
    pthread_join(ranks[rank].kernels, NULL);
    ck_assert_int_eq(ranks[rank].stopped, 1);
    for (int r = 0; r < RANKS; r++) {
        ck_assert(r == rank || !epx_proxy_failure(ranks[r].proxy));
        ck_assert_int_eq(ranks[r].aborts, 0);
        ranks[r].comm.finished = EPX_ERR_TIMEOUT;
    }
    for (int r = 0; r < RANKS; r++)
        if (r != rank)
            pthread_join(ranks[r].kernels, NULL);
    await_aborts();
    free_all();
}

START_TEST(an_error_of_the_transport_stops_kernels_and_says_why)
{
    open_all(&one_by_one);
    ranks[1].fails_at = 5;
    start_kernels(FOREVER);
    await_failure(&ranks[1], "rank 1: the proxy: the wire is cut");
    end_after_failure(1);
    ck_assert_uint_eq(ranks[1].done, 4);
    ck_assert_uint_eq(ranks[1].num_exchanges, 5);
}
END_TEST

START_TEST(a_copy_that_fails_stops_kernels_and_says_why)
{
    const char *failure;

    open_all(&at_once);
    pretend_fail_call(1);
    post(&ranks[1], 1);
    ck_assert_int_eq(await_release(&ranks[1], 1), 0);
    ck_assert_int_eq(ranks[1].stopped, 1);
    failure = epx_proxy_failure(ranks[1].proxy);
    ck_assert_ptr_nonnull(failure);
    ck_assert_msg(strstr(failure, "rank 1: the proxy: cudaMemcpyAsync") != NULL, "%s", failure);
    ck_assert_uint_eq(ranks[1].num_exchanges, 0);
    free_all();
}
END_TEST

START_TEST(a_release_that_fails_stops_kernels_and_says_why)
{
    open_all(&at_once);
    pretend_fail_writes();
    start_kernels(1);
    for (int r = 0; r < RANKS; r++) {
        char wanted[EPX_MAX_ERROR_STRING];

        snprintf(wanted, sizeof(wanted), "rank %d: the proxy: cuStreamWriteValue64: error 719", r);
        await_failure(&ranks[r], wanted);
    }
    join_kernels();
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(ranks[r].stopped, 1);
    free_all();
}
END_TEST

START_TEST(a_thread_without_a_device_stops_kernels_and_says_why)
{
    new_scene();
    pretend_lose_device();
    open_rank(0, &at_once);
    ck_assert_int_eq(epx_proxy_create(&ranks[0].device, &ranks[0].proxy), EPX_SUCCESS);
    post(&ranks[0], 1);
    ck_assert_int_eq(await_release(&ranks[0], 1), 0);
    ck_assert_int_eq(ranks[0].stopped, 1);
    ck_assert_ptr_nonnull(strstr(epx_proxy_failure(ranks[0].proxy), "rank 0: the proxy: "));
    epx_proxy_retire(ranks[0].proxy);
    free_all();
}
END_TEST

/* What a proxy logs when an operation is queued on a stream. */
static void note_stream(struct rank *rank, cudaStream_t stream, char text[512])
{
    struct capture capture;

    capture_begin(&capture);
    epx_proxy_note_stream(rank->proxy, stream);
    capture_end(&capture, text, 512);
}

/* Each proxy is told of one default stream after the other. Where kernels make the copies, CUDA
 * calls of other threads hold up nobody. */
START_TEST(the_default_stream_is_warned_of_once)
{
    const struct epx_transport_ops *const ops = _i ? &by_copies : &at_once;
    const cudaStream_t defaults[] = {NULL, cudaStreamLegacy, NULL};
    int own;
    char text[512];

    open_all(ops);
    for (int r = 0; r < 2; r++) {
        note_stream(&ranks[r], (cudaStream_t)(void *)&own, text);
        ck_assert_str_eq(text, "");
        note_stream(&ranks[r], cudaStreamPerThread, text);
        ck_assert_str_eq(text, "");
        for (int i = 0; i < 2; i++) {
            note_stream(&ranks[r], defaults[r + i], text);
            ck_assert_msg((strstr(text, "default stream") != NULL) == (!i && !_i), "\"%s\"", text);
        }
    }
    free_all();
}
END_TEST

static double cpu_seconds(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* The share of a core that is used; without naps one proxy would take all that others leave. */
static double idle_share(void)
{
    const struct timespec pause = {0, 300000000};
    double cpu = cpu_seconds(), wall = suite_seconds();

    nanosleep(&pause, NULL);
    return (cpu_seconds() - cpu) / (suite_seconds() - wall);
}

START_TEST(an_idle_proxy_sleeps_and_wakes_up)
{
    int tries = 0;

    open_all(&at_once);
    while (idle_share() > 0.5)
        ck_assert_int_lt(++tries, LOOKS_AT_IDLE);
    start_kernels(EXCHANGES / 10);
    join_kernels();
    free_all();
}
END_TEST

START_TEST(a_creation_that_fails_anywhere_leaves_nothing)
{
    int n = 0, rc;

    new_scene();
    do {
        struct epx_proxy *proxy = NULL;

        pretend_reset();
        pretend_fail_call(++n);
        open_rank(0, &at_once);
        rc = epx_proxy_create(&ranks[0].device, &proxy);
        ck_assert_int_eq(rc == EPX_SUCCESS, proxy != NULL);
        pretend_reset();
        epx_proxy_free(proxy);
        ck_assert_int_eq(pretend_objects(), 0);
    } while (rc != EPX_SUCCESS);
    free_all();
    ck_assert_int_gt(n, 5);
}
END_TEST

START_TEST(a_proxy_that_nobody_freed_ends_before_the_process)
{
    open_all(&at_once);
    start_kernels(10);
    join_kernels();
    ck_assert_int_eq(pretend_threads(), RANKS);
}
END_TEST

/* Runs at exit where the real CUDA takes its memory away. */
static void end_of_cuda(void)
{
    if (pretend_threads() == 0)
        return;
    fprintf(stderr, "%d proxies outlive CUDA\n", pretend_threads());
    _exit(EXIT_FAILURE);
}

static Suite *make_suite(void)
{
    Suite *suite = suite_create("proxy");
    TCase *tcase = tcase_create("proxy");

    tcase_add_test(tcase, every_exchange_moves_what_its_kernel_posted);
    tcase_add_test(tcase, nothing_is_released_before_all_of_it_is_queued);
    tcase_add_test(tcase, kernels_make_every_copy_that_is_asked_for);
    tcase_add_test(tcase, a_finished_communicator_stops_kernels_and_aborts_once);
    tcase_add_test(tcase, an_exchange_that_is_queued_in_part_is_never_released);
    tcase_add_test(tcase, an_idle_proxy_sees_the_end_of_its_communicator);
    tcase_add_test(tcase, an_unused_proxy_is_freed_without_an_abort);
    tcase_add_test(tcase, a_stream_that_waits_for_nobody_is_freed);
    tcase_add_test(tcase, a_proxy_that_hangs_is_not_waited_for);
    tcase_add_test(tcase, an_error_of_the_transport_stops_kernels_and_says_why);
    tcase_add_test(tcase, a_copy_that_fails_stops_kernels_and_says_why);
    tcase_add_test(tcase, a_release_that_fails_stops_kernels_and_says_why);
    tcase_add_test(tcase, a_thread_without_a_device_stops_kernels_and_says_why);
    tcase_add_test(tcase, an_idle_proxy_sleeps_and_wakes_up);
    tcase_add_loop_test(tcase, the_default_stream_is_warned_of_once, 0, 2);
    tcase_add_test(tcase, a_creation_that_fails_anywhere_leaves_nothing);
    tcase_add_test(tcase, a_proxy_that_nobody_freed_ends_before_the_process);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(int argc, char **argv)
{
    atexit(end_of_cuda);
    return suite_main(&argc, &argv, make_suite);
}

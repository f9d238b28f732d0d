/* SPDX-License-Identifier: BSD-3-Clause */
/* device_messages.c - exchanges of messages between memories that stand for those of devices. */
#include "unit/transport/device_messages.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "support/data.h"
#include "support/suite.h"
#include "transport/cuda/asked_copies.h"
#include "transport/cuda/cuda_errors.h"

enum { MOST_BYTES = 200000, GAP = 64 };

struct epx_exchange *messages_exchange;
uint64_t *messages_arrived;

static const struct epx_transport_ops *ops;
static void *state;
static cudaStream_t stream;
static char *buffer[2]; /* out, in: [size][MOST_BYTES + GAP] */

int epx_fail_cuda(cudaError_t error, const char *call)
{
    return epx_fail(EPX_ERR_CUDA, "%s: %s", call, cudaGetErrorString(error));
}

void messages_open(const struct epx_transport_ops *given, void *given_state)
{
    size_t ranks = (size_t)suite_size;

    ops = given;
    state = given_state;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    messages_exchange =
        calloc(1, sizeof(*messages_exchange) + ranks * sizeof(*messages_exchange->message));
    messages_arrived = calloc(ranks, sizeof(*messages_arrived));
    for (int i = 0; i < 2; i++)
        buffer[i] = malloc(ranks * (MOST_BYTES + GAP));
}

void messages_close(void)
{
    cudaStreamDestroy(stream);
    for (int i = 0; i < 2; i++)
        free(buffer[i]);
    free(messages_arrived);
    free(messages_exchange);
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

void messages_prepare(uint64_t number)
{
    struct epx_exchange *exchange = messages_exchange;

    exchange->number = number;
    exchange->send = buffer[0];
    exchange->recv = buffer[1];
    exchange->stamp = (char *)&exchange->number;
    exchange->arrived = (char *)messages_arrived;
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

void messages_check(uint64_t number)
{
    for (int r = 0; r < suite_size; r++) {
        const char *part = part_of(1, r);
        int64_t bytes = r == suite_rank ? 0 : messages_exchange->message[r].recv_bytes, wrong = 0;

        for (int64_t i = 0; i < bytes; i++)
            wrong += part[i] != byte_of(number, r, suite_rank, i);
        for (int64_t i = bytes; i < MOST_BYTES + GAP; i++)
            wrong += part[i] != 0x5a;
        EXPECT(wrong == 0, "%lld of %lld bytes from rank %d in exchange %llu", (long long)wrong,
               (long long)bytes, r, (unsigned long long)number);
    }
}

void messages_start(void)
{
    EXPECT_CODE(ops->exchanges->start(state, messages_exchange, stream), EPX_SUCCESS);
}

/* Copies to and from the host by kernels use page-locked memory alone. */
static void expect_pinned(const struct epx_copy_queues *queues, int queue)
{
    uint64_t asked = queues->asked[queue];

    for (uint64_t n = asked > EPX_COPY_SLOTS ? asked - EPX_COPY_SLOTS : 0; n < asked; n++) {
        const struct epx_copy *copy = &queues->copy[queue][n % EPX_COPY_SLOTS];
        const void *host = queue == EPX_COPY_OUT ? copy->to : copy->from;

        EXPECT(pretend_is_pinned(host, (size_t)copy->bytes), "copy %llu of queue %d is pageable",
               (unsigned long long)n, queue);
    }
}

static void make_copies(int all)
{
    struct epx_copy_queues *queues;

    if (!ops->exchanges->copies)
        return;
    queues = ops->exchanges->copies(state)->queues;
    for (int queue = 0; queue < EPX_COPY_QUEUES; queue++)
        expect_pinned(queues, queue);
    pretend_make_copies(queues, all);
}

void messages_drain(void)
{
    pretend_drain();
    make_copies(1);
}

static int go_on(double seconds, int *queued)
{
    double end = suite_seconds() + seconds;
    int moved = 0, rc = EPX_SUCCESS;

    *queued = 0;
    while (rc == EPX_SUCCESS && !*queued && suite_seconds() < end) {
        rc = ops->exchanges->queued(state, queued, &moved);
        make_copies(0);
        if (!moved)
            sched_yield();
    }
    return rc;
}

int messages_go_on(double seconds)
{
    int queued;

    EXPECT_CODE(go_on(seconds, &queued), EPX_SUCCESS);
    return queued;
}

int messages_fail(double seconds)
{
    int queued, rc = go_on(seconds, &queued);

    EXPECT(rc != EPX_SUCCESS, "no error, queued: %d", queued);
    return rc != EPX_SUCCESS;
}

void messages_expect_behind(int silent)
{
    const uint64_t *arrived = messages_arrived;

    for (int r = 0; r < suite_size; r++)
        EXPECT(r == suite_rank || r == silent || arrived[r] > arrived[silent],
               "rank %d at %llu, rank %d at %llu", r, (unsigned long long)arrived[r], silent,
               (unsigned long long)arrived[silent]);
}

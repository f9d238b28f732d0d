/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * transport_bounce.c - messages between device memories through pinned stages on the hosts, by a
 * transport of host memory that the proxy's thread moves: the GPU's copy engines bring a piece of
 * each message into the stage of its rank, or where that cannot be mapped into this rank's own, the
 * host transport tells that it is there, and copy engines take it to the other GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agree.h"
#include "cuda_errors.h"
#include "device.h"
#include "device_ranks.h"
#include "device_scope.h"
#include "device_windows.h"
#include "jitter.h"
#include "pieces.h"
#include "progress.h"
#include "transport.h"

/*
 * An exchange is some rounds, each an alltoallv of the host transport: every rank gives every other
 * a header and at most a piece of the message. Rounds are numbered through all exchanges, on all
 * ranks alike: the first headers of an exchange tell how many rounds their ranks need, and all
 * make the most of these. Round n goes into stage n % 2 of every rank and from the other one; the
 * next is copied out while it is under way:
 *
 *   claim    when the copies out of stage n % 2, of round n - 2, have ended, this rank says that
 *            the stage may be stored into (place, of the host transport): while round n - 1 is
 *            under way, whether round n is of the same exchange or of one that is yet to come
 *   fill     to each rank that has said so: the piece is copied out, on a stream of this transport,
 *            behind nothing, for kernels stored it before they posted the exchange
 *   begin    when all copies have ended and round n - 1 is over: the headers, then the alltoallv,
 *            which tells the others
 *   take     whatever has come is copied in, on the stream of the proxy, so that its release comes
 *            behind the last of them
 *
 * Where stages are not mapped, a message leaves from the stage that round n - 1 came into: such a
 * round is claimed when that one is over and copied in too.
 *
 * Who does not answer: steps[r] is the last step that rank r was seen to have come to, 2n - 1 when
 * it has claimed round n, 2n when its block has come. They are copied to where kernels look for who
 * is behind whenever nothing has moved for a while.
 * Invariant: steps only grow, and the ranks that a round waits for have smaller ones than those it
 * does not wait for.
 */
enum { STEPS_MS = 1 };

struct header {
    uint64_t exchange; /* its number */
    int64_t rounds;    /* that the sender needs */
    int64_t bytes;     /* of the piece */
};

/* A round that is being filled. */
struct filling {
    int claimed, recorded, full;
    char **place; /* [R] where the block goes; NULL = the rank has not claimed */
    char *copied; /* [R] the piece is on its way there */
};

struct bounce {
    struct epx_comm *comm;
    const struct epx_transport_ops *host;
    void *messages; /* the host transport's state */
    struct epx_device_windows windows;

    struct epx_pieces pieces;
    char *stage[2];
    void **registered; /* [R] with CUDA, by this transport */
    int is_mapped;     /* the stages of all ranks are mapped here */

    cudaStream_t outward;  /* of copies out of the GPU */
    cudaEvent_t filled;    /* the last of a round's */
    cudaEvent_t emptied[2]; /* the last copy out of a stage into the GPU */

    /* the exchange under way */
    const struct epx_exchange *exchange;
    cudaStream_t inward;
    int64_t rounds, own_rounds;
    int64_t begun; /* rounds of it */

    uint64_t number; /* of the last round that has begun */
    int under_way;
    struct filling filling; /* of the next */
    char *came;             /* [R] in the round under way */
    int *counts, *displs;   /* [2][R] to and from; [R] */
    uint64_t *steps;        /* [R] pinned */
    int steps_changed;
    int64_t moved_ns;
};

static int is_present(cudaEvent_t event, int *present)
{
    cudaError_t error = epx_device_query(event);

    *present = error == cudaSuccess;
    if (error != cudaSuccess && error != cudaErrorNotReady)
        return epx_fail_cuda(error, "cudaEventQuery");
    return EPX_SUCCESS;
}

static void note_step(struct bounce *bounce, int rank, uint64_t step)
{
    if (bounce->steps[rank] >= step)
        return;
    bounce->steps[rank] = step;
    bounce->steps_changed = 1;
}

static int show_steps(struct bounce *bounce, int moved)
{
    int64_t now = epx_now_ns();
    size_t bytes = (size_t)bounce->comm->size * sizeof(*bounce->steps);

    if (moved)
        bounce->moved_ns = now;
    if (!bounce->steps_changed || now - bounce->moved_ns < STEPS_MS * 1000000)
        return EPX_SUCCESS;
    bounce->steps_changed = 0;
    EPX_TRY_CUDA(cudaMemcpyAsync(bounce->exchange->arrived, bounce->steps, bytes,
                                 cudaMemcpyHostToDevice, bounce->inward));
    return EPX_SUCCESS;
}

/* Whether this rank's stage of the next round may be stored into. */
static int claim(struct bounce *bounce)
{
    uint64_t next = bounce->number + 1;
    int emptied, left = 1;

    if (bounce->filling.claimed)
        return EPX_SUCCESS;
    EPX_TRY(is_present(bounce->emptied[next % 2], &emptied));
    if (!bounce->is_mapped && emptied)
        EPX_TRY(is_present(bounce->emptied[(next + 1) % 2], &left));
    left = left && (bounce->is_mapped || !bounce->under_way);
    bounce->filling.claimed = emptied && left;
    return EPX_SUCCESS;
}

static int copy_out(struct bounce *bounce, int rank)
{
    const struct epx_exchange *exchange = bounce->exchange;
    const struct epx_message *message = &exchange->message[rank];
    size_t bytes = epx_piece_bytes(&bounce->pieces, message->send_bytes, bounce->begun);
    const char *from = exchange->send + message->send_at +
                       bounce->begun * bounce->pieces.piece_bytes;

    if (bytes)
        EPX_TRY_CUDA(cudaMemcpyAsync(bounce->filling.place[rank] + EPX_PIECE_HEADER_BYTES, from,
                                     bytes, cudaMemcpyDeviceToHost, bounce->outward));
    return EPX_SUCCESS;
}

static void ask_for_places(struct bounce *bounce, int *moved)
{
    uint64_t next = bounce->number + 1;
    int64_t share = bounce->pieces.share_bytes;
    int self = bounce->comm->rank;
    char **place = bounce->filling.place, *into = bounce->stage[next % 2] + self * share;

    for (int r = 0; r < bounce->comm->size; r++) {
        if (r == self || place[r])
            continue;
        place[r] = bounce->host->place(bounce->messages, r,
                                       bounce->stage[(next + 1) % 2] + r * share, into);
        if (!place[r])
            continue;
        *moved = 1;
        if (bounce->is_mapped)
            note_step(bounce, r, 2 * next - 1);
    }
}

/* To ranks that have claimed the round; whether all have. */
static int copy_pieces(struct bounce *bounce, int *all)
{
    struct filling *filling = &bounce->filling;
    int self = bounce->comm->rank, size = bounce->comm->size;

    *all = 1;
    for (int i = 1; i < size; i++) {
        int r = (self + i) % size;

        *all &= filling->place[r] != NULL;
        if (!filling->place[r] || filling->copied[r])
            continue;
        filling->copied[r] = 1;
        EPX_TRY(copy_out(bounce, r));
    }
    return EPX_SUCCESS;
}

static int fill(struct bounce *bounce, int *moved)
{
    struct filling *filling = &bounce->filling;
    int all = 0;

    EPX_TRY(claim(bounce));
    if (!filling->claimed || filling->full)
        return EPX_SUCCESS;
    ask_for_places(bounce, moved);
    if (bounce->begun >= bounce->rounds)
        return EPX_SUCCESS;
    if (!filling->recorded)
        EPX_TRY(copy_pieces(bounce, &all));
    if (all) {
        EPX_TRY_CUDA(cudaEventRecord(bounce->filled, bounce->outward));
        filling->recorded = 1;
    }
    if (filling->recorded)
        EPX_TRY(is_present(bounce->filled, &filling->full));
    *moved |= filling->full;
    return EPX_SUCCESS;
}

/* Behind the copies: what is in front of a piece is stored last. */
static void address_blocks(struct bounce *bounce)
{
    const struct epx_exchange *exchange = bounce->exchange;

    for (int r = 0; r < bounce->comm->size; r++) {
        const struct epx_message *message = &exchange->message[r];
        struct header header = {.exchange = exchange->number, .rounds = bounce->own_rounds};
        int others = r != bounce->comm->rank;

        bounce->counts[r] = bounce->counts[bounce->comm->size + r] = 0;
        if (!others)
            continue;
        header.bytes = (int64_t)epx_piece_bytes(&bounce->pieces, message->send_bytes,
                                                bounce->begun);
        memcpy(bounce->filling.place[r], &header, sizeof(header));
        bounce->counts[r] = EPX_PIECE_HEADER_BYTES + (int)header.bytes;
        bounce->counts[bounce->comm->size + r] =
            EPX_PIECE_HEADER_BYTES +
            (int)epx_piece_bytes(&bounce->pieces, message->recv_bytes, bounce->begun);
    }
}

static int begin(struct bounce *bounce, int *moved)
{
    size_t ranks = (size_t)bounce->comm->size;
    uint64_t number = bounce->number + 1;

    if (bounce->under_way || !bounce->filling.full)
        return EPX_SUCCESS;
    epx_jitter();
    address_blocks(bounce);
    EPX_TRY(bounce->host->alltoallv(bounce->messages, bounce->stage[(number + 1) % 2],
                                    bounce->counts, bounce->displs, bounce->stage[number % 2],
                                    bounce->counts + ranks, bounce->displs));
    bounce->number = number;
    bounce->begun++;
    bounce->under_way = 1;
    bounce->filling.claimed = bounce->filling.recorded = bounce->filling.full = 0;
    memset(bounce->filling.place, 0, ranks * sizeof(*bounce->filling.place));
    memset(bounce->filling.copied, 0, ranks);
    memset(bounce->came, 0, ranks);
    bounce->came[bounce->comm->rank] = 1;
    *moved = 1;
    return EPX_SUCCESS;
}

static int copy_in(struct bounce *bounce, int rank)
{
    const struct epx_exchange *exchange = bounce->exchange;
    const struct epx_message *message = &exchange->message[rank];
    const char *block = bounce->stage[bounce->number % 2] + rank * bounce->pieces.share_bytes;
    int64_t round = bounce->begun - 1;
    size_t bytes = epx_piece_bytes(&bounce->pieces, message->recv_bytes, round);
    struct header header;

    memcpy(&header, block, sizeof(header));
    EPX_FAIL_IF(header.exchange != exchange->number || header.bytes != (int64_t)bytes,
                EPX_ERR_INTERN, "rank %d sent %lld bytes in exchange %llu, not %zu in %llu", rank,
                (long long)header.bytes, (unsigned long long)header.exchange, bytes,
                (unsigned long long)exchange->number);
    if (bounce->rounds < header.rounds)
        bounce->rounds = header.rounds;
    if (bytes)
        EPX_TRY_CUDA(cudaMemcpyAsync(exchange->recv + message->recv_at +
                                         round * bounce->pieces.piece_bytes,
                                     block + EPX_PIECE_HEADER_BYTES, bytes,
                                     cudaMemcpyHostToDevice, bounce->inward));
    return EPX_SUCCESS;
}

static int take(struct bounce *bounce, int *moved)
{
    int done;

    if (!bounce->under_way)
        return EPX_SUCCESS;
    EPX_TRY(bounce->host->done(bounce->messages, &done));
    for (int r = 0; r < bounce->comm->size; r++) {
        if (bounce->came[r] || !bounce->host->came(bounce->messages, r))
            continue;
        bounce->came[r] = 1;
        *moved = 1;
        note_step(bounce, r, 2 * bounce->number);
        EPX_TRY(copy_in(bounce, r));
    }
    if (!done)
        return EPX_SUCCESS;
    EPX_TRY_CUDA(cudaEventRecord(bounce->emptied[bounce->number % 2], bounce->inward));
    bounce->under_way = 0;
    *moved = 1;
    return EPX_SUCCESS;
}

static int bounce_queued(void *state, int *queued, int *moved)
{
    struct bounce *bounce = state;
    char message[EPX_MAX_ERROR_STRING];

    *moved = 0;
    if (bounce->rounds) {
        if (bounce->host->liveness->beat(bounce->messages, 0, message))
            return epx_fail(EPX_ERR_TRANSPORT, "%s", message);
        EPX_TRY(take(bounce, moved));
        EPX_TRY(fill(bounce, moved));
        EPX_TRY(begin(bounce, moved));
        EPX_TRY(show_steps(bounce, *moved));
    }
    *queued = !bounce->under_way && bounce->begun == bounce->rounds;
    return EPX_SUCCESS;
}

static int64_t count_rounds(const struct bounce *bounce, const struct epx_exchange *exchange)
{
    int64_t most = 0;

    for (int r = 0; r < bounce->comm->size; r++) {
        const struct epx_message *message = &exchange->message[r];
        int64_t longer = message->send_bytes > message->recv_bytes ? message->send_bytes
                                                                   : message->recv_bytes;
        int64_t rounds = epx_pieces_rounds(&bounce->pieces, longer);

        if (r != bounce->comm->rank && rounds > most)
            most = rounds;
    }
    return most;
}

static int bounce_exchange(void *state, const struct epx_exchange *exchange, void *stream)
{
    struct bounce *bounce = state;

    bounce->exchange = exchange;
    bounce->inward = stream;
    bounce->begun = 0;
    bounce->rounds = bounce->own_rounds = count_rounds(bounce, exchange);
    bounce->moved_ns = epx_now_ns();
    return EPX_SUCCESS;
}

/* Ranks may share a GPU if the kernels of all of them can wait there at once. */
static int fits(const struct epx_comm *comm, const int64_t *devices, char *why)
{
    int sms = 0, ordinal = 0, ranks = 0;

    for (int r = 0; r < comm->size; r++)
        ranks += devices[r] == devices[comm->rank];
    if (ranks == 1)
        return 1;
    if (cudaGetDevice(&ordinal) != cudaSuccess ||
        cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, ordinal) != cudaSuccess)
        cudaGetLastError();
    if (ranks * comm->params.max_sms <= sms)
        return 1;
    snprintf(why, EPX_WHY_MAX, "%d ranks share a GPU of %d multiprocessors, want epx_max_sms at "
             "most %d", ranks, sms, sms / ranks);
    return 0;
}

static int bounce_usable(struct epx_comm *comm, char *why)
{
    const struct epx_transport_ops *host = epx_transport_host_messages();
    int64_t *devices = epx_device_numbers(comm, why);
    int usable = devices && fits(comm, devices, why) && host->usable(comm, why);

    free(devices);
    return usable;
}

static int bounce_window_create(void *state, size_t bytes, struct epx_window **window)
{
    struct bounce *bounce = state;

    return epx_device_windows_create(&bounce->windows, bytes, window);
}

static void bounce_window_free(void *state, struct epx_window *window)
{
    struct bounce *bounce = state;

    epx_device_windows_free(&bounce->windows, window);
}

static void bounce_reclaim(void *state)
{
    struct bounce *bounce = state;

    epx_device_windows_reclaim(&bounce->windows);
}

static size_t stages_bytes(const struct bounce *bounce)
{
    size_t stage = (size_t)(bounce->stage[1] - bounce->stage[0]);

    return stage + (size_t)(bounce->comm->size * bounce->pieces.share_bytes);
}

static void free_cuda(struct bounce *bounce)
{
    if (bounce->outward)
        cudaStreamSynchronize(bounce->outward);
    for (int r = 0; bounce->registered && r < bounce->comm->size; r++)
        if (bounce->registered[r])
            cudaHostUnregister(bounce->registered[r]);
    if (bounce->filled)
        cudaEventDestroy(bounce->filled);
    for (int i = 0; i < 2; i++)
        if (bounce->emptied[i])
            cudaEventDestroy(bounce->emptied[i]);
    if (bounce->outward)
        cudaStreamDestroy(bounce->outward);
    cudaFreeHost(bounce->steps);
    epx_device_windows_close(&bounce->windows);
}

static void bounce_free(void *state)
{
    struct bounce *bounce = state;
    struct epx_device_scope scope;

    if (!bounce)
        return;
    if (epx_device_enter(bounce->windows.ordinal, &scope) == cudaSuccess) {
        free_cuda(bounce);
        epx_device_leave(&scope);
    }
    if (bounce->messages)
        bounce->host->free(bounce->messages);
    free(bounce->registered);
    free(bounce->filling.place);
    free(bounce->filling.copied);
    free(bounce->came);
    free(bounce->counts);
    free(bounce->displs);
    free(bounce);
}

static int allocate(struct bounce *bounce)
{
    size_t ranks = (size_t)bounce->comm->size;

    bounce->registered = calloc(ranks, sizeof(*bounce->registered));
    bounce->filling.place = calloc(ranks, sizeof(*bounce->filling.place));
    bounce->filling.copied = calloc(ranks, sizeof(*bounce->filling.copied));
    bounce->came = calloc(ranks, sizeof(*bounce->came));
    bounce->counts = calloc(2 * ranks, sizeof(*bounce->counts));
    bounce->displs = calloc(ranks, sizeof(*bounce->displs));
    EPX_FAIL_IF(!bounce->registered || !bounce->filling.place || !bounce->filling.copied ||
                    !bounce->came || !bounce->counts || !bounce->displs,
                EPX_ERR_NO_MEM, "no memory for %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++)
        bounce->displs[r] = (int)((int64_t)r * bounce->pieces.share_bytes);
    return EPX_SUCCESS;
}

static int init(struct bounce *bounce)
{
    size_t bytes = (size_t)bounce->comm->size * sizeof(*bounce->steps);
    int least, greatest;

    bounce->pieces = epx_pieces_of(bounce->comm->params.window_bytes, bounce->comm->size);
    EPX_TRY(allocate(bounce));
    EPX_TRY(epx_device_windows_open(&bounce->windows, bounce->comm));
    EPX_TRY_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    EPX_TRY_CUDA(cudaStreamCreateWithPriority(&bounce->outward, cudaStreamNonBlocking, greatest));
    EPX_TRY_CUDA(cudaEventCreateWithFlags(&bounce->filled, cudaEventDisableTiming));
    for (int i = 0; i < 2; i++)
        EPX_TRY_CUDA(cudaEventCreateWithFlags(&bounce->emptied[i], cudaEventDisableTiming));
    EPX_TRY_CUDA(cudaHostAlloc((void **)&bounce->steps, bytes, cudaHostAllocPortable));
    memset(bounce->steps, 0, bytes);
    return EPX_SUCCESS;
}

/* The host transport itself may have done so. */
static int pin(struct bounce *bounce, int rank, char *stages)
{
    cudaError_t error = cudaHostRegister(stages, stages_bytes(bounce), cudaHostRegisterPortable);

    if (error == cudaErrorHostMemoryAlreadyRegistered) {
        cudaGetLastError();
        return EPX_SUCCESS;
    }
    EPX_TRY_CUDA(error);
    bounce->registered[rank] = stages;
    return EPX_SUCCESS;
}

static int pin_all(struct bounce *bounce)
{
    int self = bounce->comm->rank;

    bounce->is_mapped = 1;
    EPX_TRY(pin(bounce, self, bounce->stage[0]));
    for (int r = 0; r < bounce->comm->size; r++) {
        char *stages = r == self ? bounce->stage[0]
                                 : bounce->host->mapped(bounce->messages, r, bounce->stage[0]);

        bounce->is_mapped &= stages != NULL;
        if (stages && r != self)
            EPX_TRY(pin(bounce, r, stages));
    }
    return EPX_SUCCESS;
}

/* Everything that CUDA loads when it is first used: later it could wait for a kernel that waits. */
static int warm_up(struct bounce *bounce)
{
    enum { SHORT = 40 };
    cudaStream_t out = bounce->outward, in = bounce->windows.stream;
    char *host = bounce->stage[0], *memory = NULL;
    size_t bytes = EPX_PIECE_HEADER_BYTES + EPX_LINE_BYTES;

    EPX_TRY_CUDA(cudaMallocAsync((void **)&memory, bytes, in));
    EPX_TRY_CUDA(cudaMemcpyAsync(memory, host, bytes, cudaMemcpyHostToDevice, in));
    EPX_TRY_CUDA(cudaMemcpyAsync(memory, host, SHORT, cudaMemcpyHostToDevice, in));
    for (int i = 0; i < 2; i++)
        EPX_TRY_CUDA(cudaEventRecord(bounce->emptied[i], in));
    EPX_TRY_CUDA(cudaStreamSynchronize(in));
    EPX_TRY_CUDA(cudaMemcpyAsync(host, memory, bytes, cudaMemcpyDeviceToHost, out));
    EPX_TRY_CUDA(cudaMemcpyAsync(host, memory, SHORT, cudaMemcpyDeviceToHost, out));
    EPX_TRY_CUDA(cudaEventRecord(bounce->filled, out));
    EPX_TRY_CUDA(cudaStreamSynchronize(out));
    EPX_TRY_CUDA(cudaFreeAsync(memory, in));
    EPX_TRY_CUDA(cudaStreamSynchronize(in));
    return EPX_SUCCESS;
}

static int init_all(void *state)
{
    struct bounce *bounce = state;
    struct epx_comm *comm = bounce->comm;
    size_t bytes;

    EPX_TRY(epx_comm_agree(comm, init(bounce)));
    EPX_TRY(bounce->host->create(comm, &bounce->messages));
    bytes = (size_t)(comm->size * bounce->pieces.share_bytes);
    EPX_TRY(bounce->host->stages(bounce->messages, bytes, &bounce->stage[0], &bounce->stage[1]));
    EPX_TRY(epx_comm_agree(comm, pin_all(bounce)));
    return epx_comm_agree(comm, warm_up(bounce));
}

static int bounce_create(struct epx_comm *comm, void **state)
{
    struct bounce *bounce = calloc(1, sizeof(*bounce));

    *state = bounce;
    if (!bounce)
        return epx_comm_agree(comm, epx_fail(EPX_ERR_NO_MEM, "no memory for transport ucx"));
    bounce->comm = comm;
    bounce->host = epx_transport_host_messages();
    return epx_device_run(comm, &bounce->windows.ordinal, init_all, bounce);
}

/* What it queues on the stream waits for no rank: there is nothing to abort. */
const struct epx_transport_ops epx_transport_bounce = {
    .memory = EPX_MEMORY_CUDA,
    .usable = bounce_usable,
    .create = bounce_create,
    .free = bounce_free,
    .window_create = bounce_window_create,
    .window_free = bounce_window_free,
    .reclaim = bounce_reclaim,
    .exchange = bounce_exchange,
    .queued = bounce_queued,
};

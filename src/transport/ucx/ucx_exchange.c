/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_exchange.c - exchanges of messages between device memories by UCX. */
#include <sched.h>

#include "base/clock.h"
#include "base/jitter.h"
#include "kernels/ring.h"
#include "transport/cuda/cuda_errors.h"
#include "transport/ucx/transport_ucx_device.h"
#include "transport/ucx/ucx_context.h"

/*
 * In an exchange two ranks that take part with each other send one message each way, an empty one
 * where bytes go the other way alone; in an exchange of the transport's own all ranks do. A rank is
 * through when its messages are sent, those of the others have come, and the worker is flushed
 * after that: until the next exchange nobody progresses the worker, so nothing that a peer needs
 * may be left in it. The tag is the exchange's number and the sender. A message that is early waits
 * inside UCX: at most one from each rank, as that rank waits for an answer.
 *
 * Who does not answer: answered[r] is the last exchange whose message has come from rank r, or in
 * which none was to come. Writer: the proxy's thread. When nothing has moved for a while, it copies
 * the numbers to where kernels look for who is behind. Invariant: the numbers only grow, and ranks
 * that are waited for have smaller ones.
 *
 * Kernels wait on the device all the time, so nothing that UCX calls may wait for them. UCX makes
 * its copies, including the short ones that it waits for, on streams of its own that do not wait
 * for other streams (seen in 1.17 and 1.22). What UCX loads or registers at its first use is loaded
 * by a first exchange of a short and a long message. cuda_ipc maps the memory of another process
 * when it first sees it and unmaps it when it was replaced, which may wait for the device: so
 * cuda_ipc is left out, unless the user names UCX's transports.
 */
enum { SOURCE_BITS = 16, ANSWERS_MS = 1, ABORT_PASSES = 100 };

static int fail_with(int rank, ucs_status_t status)
{
    return epx_fail(EPX_ERR_TRANSPORT, "messages with rank %d: %s", rank,
                    ucs_status_string(status));
}

static uint64_t tag_of(uint64_t number, int source)
{
    return number << SOURCE_BITS | (uint64_t)source;
}

static ucp_request_param_t param_of(const struct epx_ucx_device *ucx, int64_t bytes)
{
    return (ucp_request_param_t){
        .op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .memory_type = bytes ? ucx->memory : UCS_MEMORY_TYPE_HOST,
    };
}

static int receive_from(struct epx_ucx_device *ucx, int rank)
{
    const struct epx_exchange *exchange = ucx->exchange;
    const struct epx_message *message = &exchange->message[rank];
    int64_t bytes = message->recv_bytes;
    ucp_request_param_t param = param_of(ucx, bytes);
    void *request;

    param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    request = ucp_tag_recv_nbx(ucx->worker, bytes ? exchange->recv + message->recv_at : NULL,
                               (size_t)bytes, tag_of(exchange->number, rank), ~0ULL, &param);
    if (UCS_PTR_IS_ERR(request))
        return fail_with(rank, UCS_PTR_STATUS(request));
    ucx->peer[rank].receiving = request;
    return EPX_SUCCESS;
}

static int send_to(struct epx_ucx_device *ucx, int rank)
{
    const struct epx_exchange *exchange = ucx->exchange;
    const struct epx_message *message = &exchange->message[rank];
    int64_t bytes = message->send_bytes;
    ucp_request_param_t param = param_of(ucx, bytes);
    void *request =
        ucp_tag_send_nbx(ucx->peer[rank].endpoint, bytes ? exchange->send + message->send_at : NULL,
                         (size_t)bytes, tag_of(exchange->number, ucx->comm->rank), &param);

    if (UCS_PTR_IS_ERR(request))
        return fail_with(rank, UCS_PTR_STATUS(request));
    ucx->peer[rank].sending = request;
    return EPX_SUCCESS;
}

static int takes_part(const struct epx_ucx_device *ucx, int rank)
{
    return ucx->exchange == ucx->own || epx_message_takes_part(&ucx->exchange->message[rank]);
}

/* Starts to receive from a rank, or notes that nothing is to come from it. */
static int await_from(struct epx_ucx_device *ucx, int rank)
{
    if (takes_part(ucx, rank))
        return receive_from(ucx, rank);
    ucx->answered[rank] = ucx->exchange->number;
    return EPX_SUCCESS;
}

int epx_ucx_exchange(void *state, const struct epx_exchange *exchange, void *stream)
{
    struct epx_ucx_device *ucx = state;
    int rank = ucx->comm->rank, size = ucx->comm->size;

    ucx->exchange = exchange;
    ucx->stream = stream;
    ucx->flushed = 0;
    ucx->moved_ns = epx_now_ns();
    if (exchange != ucx->own)
        ucx->answered[rank] = exchange->number;
    for (int i = 1; i < size; i++)
        EPX_TRY(await_from(ucx, (rank + size - i) % size));
    epx_jitter();
    for (int i = 1; i < size; i++)
        if (takes_part(ucx, (rank + i) % size))
            EPX_TRY(send_to(ucx, (rank + i) % size));
    return EPX_SUCCESS;
}

static int look_at_sent(struct epx_ucx_device *ucx, int rank, int *all)
{
    struct epx_ucx_peer *peer = &ucx->peer[rank];
    ucs_status_t status;

    if (!peer->sending)
        return EPX_SUCCESS;
    status = ucp_request_check_status(peer->sending);
    if (status == UCS_INPROGRESS) {
        *all = 0;
        return EPX_SUCCESS;
    }
    ucp_request_free(peer->sending);
    peer->sending = NULL;
    return status == UCS_OK ? EPX_SUCCESS : fail_with(rank, status);
}

static int look_at_received(struct epx_ucx_device *ucx, int rank, int *all)
{
    const struct epx_exchange *exchange = ucx->exchange;
    struct epx_ucx_peer *peer = &ucx->peer[rank];
    ucp_tag_recv_info_t info = {0};
    ucs_status_t status;

    if (!peer->receiving)
        return EPX_SUCCESS;
    status = ucp_tag_recv_request_test(peer->receiving, &info);
    if (status == UCS_INPROGRESS) {
        *all = 0;
        return EPX_SUCCESS;
    }
    ucp_request_free(peer->receiving);
    peer->receiving = NULL;
    if (status != UCS_OK)
        return fail_with(rank, status);
    EPX_FAIL_IF(info.length != (size_t)exchange->message[rank].recv_bytes, EPX_ERR_INTERN,
                "rank %d sent %zu bytes in exchange %llu, not %lld", rank, info.length,
                (unsigned long long)exchange->number,
                (long long)exchange->message[rank].recv_bytes);
    if (exchange != ucx->own) {
        ucx->answered[rank] = exchange->number;
        ucx->answers_changed = 1;
    }
    return EPX_SUCCESS;
}

static int look_at_all(struct epx_ucx_device *ucx, int *all)
{
    *all = 1;
    for (int r = 0; r < ucx->comm->size; r++) {
        EPX_TRY(look_at_received(ucx, r, all));
        EPX_TRY(look_at_sent(ucx, r, all));
        if (ucx->peer[r].lost != UCS_OK)
            return fail_with(r, ucx->peer[r].lost);
    }
    return EPX_SUCCESS;
}

/* Flushes the worker, after all messages; *over tells whether the flush has ended too. */
static int flush(struct epx_ucx_device *ucx, int *over)
{
    ucp_request_param_t param = {0};
    ucs_status_t status = UCS_OK;

    if (!ucx->flushed) {
        ucx->flushed = 1;
        ucx->flush = ucp_worker_flush_nbx(ucx->worker, &param);
    }
    if (UCS_PTR_IS_PTR(ucx->flush))
        status = ucp_request_check_status(ucx->flush);
    else
        status = UCS_PTR_STATUS(ucx->flush);
    *over = status != UCS_INPROGRESS;
    if (!*over)
        return EPX_SUCCESS;
    if (UCS_PTR_IS_PTR(ucx->flush))
        ucp_request_free(ucx->flush);
    ucx->flush = NULL;
    return status == UCS_OK || ucx->parting ? EPX_SUCCESS
                                            : epx_fail_ucx(status, "ucp_worker_flush_nbx");
}

static int end(struct epx_ucx_device *ucx)
{
    ucx->exchange = NULL;
    if (ucx->flushes_writes)
        EPX_TRY_CUDA(cudaDeviceFlushGPUDirectRDMAWrites(
            cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner));
    return EPX_SUCCESS;
}

static int show_answers(struct epx_ucx_device *ucx, int moved)
{
    int64_t now = epx_now_ns();
    size_t bytes = (size_t)ucx->comm->size * sizeof(*ucx->answered);

    if (moved)
        ucx->moved_ns = now;
    if (ucx->exchange == ucx->own || !ucx->answers_changed ||
        now - ucx->moved_ns < ANSWERS_MS * EPX_NS_PER_MS)
        return EPX_SUCCESS;
    ucx->answers_changed = 0;
    EPX_TRY_CUDA(cudaMemcpyAsync(ucx->exchange->arrived, ucx->answered, bytes,
                                 cudaMemcpyHostToDevice, ucx->stream));
    return EPX_SUCCESS;
}

int epx_ucx_queued(void *state, int *queued, int *moved)
{
    struct epx_ucx_device *ucx = state;
    int all;

    *queued = 0;
    *moved = ucp_worker_progress(ucx->worker) != 0;
    EPX_TRY(look_at_all(ucx, &all));
    if (all)
        EPX_TRY(flush(ucx, queued));
    return *queued ? end(ucx) : show_answers(ucx, *moved);
}

/* Never waits: requests that UCX cannot cancel stay, and so does the memory that they use. */
void epx_ucx_abort(void *state)
{
    struct epx_ucx_device *ucx = state;

    if (!ucx->exchange)
        return;
    for (int r = 0; r < ucx->comm->size; r++)
        if (ucx->peer[r].receiving)
            ucp_request_cancel(ucx->worker, ucx->peer[r].receiving);
    for (int i = 0; i < ABORT_PASSES; i++)
        ucp_worker_progress(ucx->worker);
}

int epx_ucx_exchange_own(struct epx_ucx_device *ucx, char *memory, int64_t bytes, int64_t ms,
                         int *over)
{
    struct epx_exchange *own = ucx->own;
    int64_t end = epx_deadline_in(ms);
    int moved;

    own->number = ucx->number++;
    own->send = memory;
    own->recv = memory ? memory + bytes : NULL;
    for (int r = 0; r < ucx->comm->size; r++)
        own->message[r] = (struct epx_message){.send_bytes = bytes, .recv_bytes = bytes};
    *over = 0;
    EPX_TRY(epx_ucx_exchange(ucx, own, NULL));
    while (!*over && (!ms || !epx_deadline_is_over(end))) {
        EPX_TRY(epx_ucx_queued(ucx, over, &moved));
        if (!moved)
            sched_yield();
    }
    return EPX_SUCCESS;
}

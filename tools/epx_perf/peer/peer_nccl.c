/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_nccl.c - the steps of a peer on the GPU: kernels, and NCCL with exact counts, which the
 * host must have. A step that brings counts to the host waits for the stream. NCCL is opened when
 * a peer needs it, so that epx_perf itself does not need it.
 */
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/peer/peer_cuda.h"
#include "epx_perf/space/perf_agree.h"
#include "epx_perf/space/perf_symbols.h"
#include "ranks/ranks.h"

#define LIBRARY "libnccl.so.2"

static struct {
    __typeof__(&ncclGetUniqueId) get_unique_id;
    __typeof__(&ncclCommInitRank) init_rank;
    __typeof__(&ncclCommDestroy) destroy;
    __typeof__(&ncclGetErrorString) error_string;
    __typeof__(&ncclGroupStart) group_start;
    __typeof__(&ncclGroupEnd) group_end;
    __typeof__(&ncclSend) send;
    __typeof__(&ncclRecv) recv;
    __typeof__(&ncclAlltoAll) alltoall;
} nccl;

static ncclComm_t comm;

static const struct perf_symbol entries[] = {
    {"ncclGetUniqueId", &nccl.get_unique_id},
    {"ncclCommInitRank", &nccl.init_rank},
    {"ncclCommDestroy", &nccl.destroy},
    {"ncclGetErrorString", &nccl.error_string},
    {"ncclGroupStart", &nccl.group_start},
    {"ncclGroupEnd", &nccl.group_end},
    {"ncclSend", &nccl.send},
    {"ncclRecv", &nccl.recv},
    {"ncclAlltoAll", &nccl.alltoall},
    {NULL, NULL},
};

static void must(ncclResult_t result, const char *what)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "epx_perf: %s: %s\n", what, nccl.error_string(result));
    ranks_failed();
}

/* Opens the library: NULL, or why that failed. */
static const char *load(void)
{
    return perf_symbols_find(dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), entries);
}

static int nccl_open(void)
{
    ncclUniqueId id;

    if (perf_agree("NCCL", load()))
        return -1;
    memset(&id, 0, sizeof(id));
    if (ranks_own() == 0)
        must(nccl.get_unique_id(&id), "ncclGetUniqueId");
    ranks_bcast(&id, sizeof(id));
    must(nccl.init_rank(&comm, ranks_num(), id, ranks_own()), "ncclCommInitRank");
    return 0;
}

static void nccl_close(void)
{
    must(nccl.destroy(comm), "ncclCommDestroy");
}

/* Copies to the host the counts that were sent and the counts that came, and waits for them. */
static void bring_counts(struct perf_peer *peer, struct perf_buffer *out, struct perf_buffer *in)
{
    perf_cuda_copy(peer, out->image, out->address, out->bytes);
    perf_cuda_copy(peer, in->image, in->address, in->bytes);
    perf_cuda_wait(peer);
}

static void nccl_exchange_counts(struct perf_peer *peer)
{
    must(nccl.alltoall(peer->counts_out.address, peer->counts_in.address, (size_t)peer->most_local,
                       ncclInt32, comm, peer->bench->stream),
         "ncclAlltoAll");
    bring_counts(peer, &peer->counts_out, &peer->counts_in);
}

/* Exchanges counts of rows that are in the memory of the GPU, as for EPX_Alltoallv. */
static void nccl_exchange_row_counts(struct perf_peer *peer, const int64_t **to,
                                     const int64_t **from)
{
    struct perf_cuda_state *state = peer->state;

    must(nccl.alltoall(peer->bench->counts.address, state->rows_from.address, 1, ncclInt64, comm,
                       peer->bench->stream),
         "ncclAlltoAll");
    perf_cuda_copy(peer, state->rows_to.address, peer->bench->counts.address, state->rows_to.bytes);
    bring_counts(peer, &state->rows_to, &state->rows_from);
    *to = state->rows_to.image;
    *from = state->rows_from.image;
}

static void nccl_exchange_rows(struct perf_peer *peer, const void *from, void *to, int back)
{
    const int *out = back ? peer->recv_counts : peer->send_counts;
    const int *out_displs = back ? peer->recv_displs : peer->send_displs;
    const int *in = back ? peer->send_counts : peer->recv_counts;
    const int *in_displs = back ? peer->send_displs : peer->recv_displs;
    size_t bytes = (size_t)peer->load->row_bytes;
    cudaStream_t stream = peer->bench->stream;

    must(nccl.group_start(), "ncclGroupStart");
    for (int r = 0; r < peer->load->size; r++) {
        if (out[r])
            must(nccl.send((const char *)from + (size_t)out_displs[r] * bytes,
                           (size_t)out[r] * bytes, ncclInt8, r, comm, stream),
                 "ncclSend");
        if (in[r])
            must(nccl.recv((char *)to + (size_t)in_displs[r] * bytes, (size_t)in[r] * bytes,
                           ncclInt8, r, comm, stream),
                 "ncclRecv");
    }
    must(nccl.group_end(), "ncclGroupEnd");
}

static void nccl_exchange_even_rows(struct perf_peer *peer, const void *from, void *to, int back)
{
    size_t rows = (size_t)peer->send_counts[0];

    (void)back;
    must(nccl.alltoall(from, to, rows * (size_t)peer->load->row_bytes, ncclInt8, comm,
                       peer->bench->stream),
         "ncclAlltoAll");
}

const struct perf_peer_steps perf_peer_nccl = {
    .open = nccl_open,
    .close = nccl_close,
    .create = perf_cuda_create,
    .free = perf_cuda_free,
    .sort_pairs = perf_cuda_sort_pairs,
    .exchange_counts = nccl_exchange_counts,
    .take_runs = perf_cuda_take_runs,
    .exchange_row_counts = nccl_exchange_row_counts,
    .pack = perf_cuda_pack,
    .exchange_rows = nccl_exchange_rows,
    .group = perf_cuda_group,
    .sum = perf_cuda_sum,
};

/* Steps for alltoallv alone, with counts that are known and equal. */
const struct perf_peer_steps perf_peer_nccl_alltoall = {
    .open = nccl_open,
    .close = nccl_close,
    .create = perf_cuda_create,
    .free = perf_cuda_free,
    .exchange_row_counts = nccl_exchange_row_counts,
    .exchange_rows = nccl_exchange_even_rows,
};

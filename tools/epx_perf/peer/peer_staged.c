/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_staged.c - the steps of a peer that has its rows on the GPU and an MPI that does not know
 * of GPUs: copies to page-locked memory, collectives of MPI there, and copies back.
 */
#include <mpi.h>
#include <stdlib.h>

#include "epx_perf/peer/peer_cuda.h"
#include "epx_perf/space/perf_alloc.h"

struct messages {
    MPI_Datatype row;
    char *outgoing, *incoming; /* page-locked, for as many rows as go or come */
};

static struct messages *messages_of(const struct perf_peer *peer)
{
    return ((struct perf_cuda_state *)peer->state)->messages;
}

static void staged_create(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    int64_t rows = load->pairs > load->capacity ? load->pairs : load->capacity;
    const struct perf_space *space = peer->bench->options->space;
    struct messages *messages = perf_alloc(1, sizeof(*messages));

    perf_cuda_create(peer);
    ((struct perf_cuda_state *)peer->state)->messages = messages;
    messages->outgoing = space->alloc_image(rows * load->row_bytes);
    messages->incoming = space->alloc_image(rows * load->row_bytes);
    MPI_Type_contiguous((int)load->row_bytes, MPI_BYTE, &messages->row);
    MPI_Type_commit(&messages->row);
}

static void staged_free(struct perf_peer *peer)
{
    const struct perf_space *space = peer->bench->options->space;
    struct messages *messages = messages_of(peer);

    MPI_Type_free(&messages->row);
    space->free_image(messages->incoming);
    space->free_image(messages->outgoing);
    free(messages);
    perf_cuda_free(peer);
}

static void staged_exchange_counts(struct perf_peer *peer)
{
    perf_cuda_copy(peer, peer->counts_out.image, peer->counts_out.address, peer->counts_out.bytes);
    perf_cuda_wait(peer);
    MPI_Alltoall(peer->counts_out.image, peer->most_local, MPI_INT, peer->counts_in.image,
                 peer->most_local, MPI_INT, MPI_COMM_WORLD);
}

static void staged_exchange_row_counts(struct perf_peer *peer, const int64_t **to,
                                       const int64_t **from)
{
    struct perf_cuda_state *kernels = peer->state;

    perf_cuda_copy(peer, kernels->rows_to.image, peer->bench->counts.address,
                   kernels->rows_to.bytes);
    perf_cuda_wait(peer);
    MPI_Alltoall(kernels->rows_to.image, 1, MPI_INT64_T, kernels->rows_from.image, 1, MPI_INT64_T,
                 MPI_COMM_WORLD);
    *to = kernels->rows_to.image;
    *from = kernels->rows_from.image;
}

static int64_t bytes_of(const struct perf_peer *peer, const int *counts)
{
    int64_t rows = 0;

    for (int r = 0; r < peer->load->size; r++)
        rows += counts[r];
    return rows * peer->load->row_bytes;
}

/* The wait also ends the copy from `incoming` that the exchange before this one queued. */
static void staged_exchange_rows(struct perf_peer *peer, const void *from, void *to, int back)
{
    struct messages *messages = messages_of(peer);
    const int *out = back ? peer->recv_counts : peer->send_counts;
    const int *out_displs = back ? peer->recv_displs : peer->send_displs;
    const int *in = back ? peer->send_counts : peer->recv_counts;
    const int *in_displs = back ? peer->send_displs : peer->recv_displs;

    perf_cuda_copy(peer, messages->outgoing, from, bytes_of(peer, out));
    perf_cuda_wait(peer);
    MPI_Alltoallv(messages->outgoing, out, out_displs, messages->row, messages->incoming, in,
                  in_displs, messages->row, MPI_COMM_WORLD);
    perf_cuda_copy(peer, to, messages->incoming, bytes_of(peer, in));
}

const struct perf_peer_steps perf_peer_staged = {
    .create = staged_create,
    .free = staged_free,
    .sort_pairs = perf_cuda_sort_pairs,
    .exchange_counts = staged_exchange_counts,
    .take_runs = perf_cuda_take_runs,
    .exchange_row_counts = staged_exchange_row_counts,
    .pack = perf_cuda_pack,
    .exchange_rows = staged_exchange_rows,
    .group = perf_cuda_group,
    .sum = perf_cuda_sum,
};

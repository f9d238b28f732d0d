/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_mpi.c - the steps of a peer on host memory: loops, and collectives of MPI. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/peer/peer_steps.h"
#include "epx_perf/peer/peer_sum.h"
#include "epx_perf/space/perf_alloc.h"

struct state {
    MPI_Datatype row;
    int64_t *first;     /* [experts + 1] place of an expert's first row */
    int64_t *rows_from; /* [size] rows of an alltoallv */
};

static void mpi_create(struct perf_peer *peer)
{
    struct state *state = perf_alloc(1, sizeof(*state));

    peer->state = state;
    state->first = perf_alloc(peer->load->experts + 1, sizeof(*state->first));
    state->rows_from = perf_alloc(peer->load->size, sizeof(*state->rows_from));
    MPI_Type_contiguous((int)peer->load->row_bytes, MPI_BYTE, &state->row);
    MPI_Type_commit(&state->row);
}

static void mpi_free(struct perf_peer *peer)
{
    struct state *state = peer->state;

    MPI_Type_free(&state->row);
    free(state->rows_from);
    free(state->first);
    free(state);
}

/* Sorts the pairs by expert; the sort is stable, so an expert's rows stand by (token, choice). */
static void mpi_sort_pairs(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    int64_t *first = ((struct state *)peer->state)->first, *place = peer->place.address;

    memset(first, 0, (size_t)(load->experts + 1) * sizeof(*first));
    for (int64_t i = 0; i < load->pairs; i++)
        if (load->ids[i] >= 0)
            first[load->ids[i] + 1]++;
    for (int r = 0, e = 0; r < load->size; r++) {
        int *counts = (int *)peer->counts_out.address + (int64_t)r * peer->most_local;

        for (int j = 0; e < perf_first_expert(load, r + 1); e++, j++)
            counts[j] = (int)first[e + 1];
    }
    for (int e = 0; e < load->experts; e++)
        first[e + 1] += first[e];
    for (int64_t i = 0; i < load->pairs; i++)
        place[i] = load->ids[i] < 0 ? -1 : first[load->ids[i]]++;
}

static void mpi_exchange_counts(struct perf_peer *peer)
{
    MPI_Alltoall(peer->counts_out.address, peer->most_local, MPI_INT, peer->counts_in.address,
                 peer->most_local, MPI_INT, MPI_COMM_WORLD);
}

static void mpi_exchange_row_counts(struct perf_peer *peer, const int64_t **to,
                                    const int64_t **from)
{
    struct state *state = peer->state;

    *to = peer->bench->counts.address;
    *from = state->rows_from;
    MPI_Alltoall(*to, 1, MPI_INT64_T, state->rows_from, 1, MPI_INT64_T, MPI_COMM_WORLD);
}

/* Packs token by token, so that each token is read from memory once. */
static void mpi_pack(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    size_t row_bytes = (size_t)load->row_bytes;
    const char *token = peer->bench->tokens.address;
    const int64_t *place = peer->place.address;
    char *packed = peer->packed.address;

    for (int64_t i = 0; i < load->pairs; token += row_bytes)
        for (int64_t end = i + load->top_k; i < end; i++)
            if (place[i] >= 0)
                memcpy(packed + (size_t)place[i] * row_bytes, token, row_bytes);
}

static void mpi_exchange_rows(struct perf_peer *peer, const void *from, void *to, int back)
{
    MPI_Datatype row = ((struct state *)peer->state)->row;

    if (back)
        MPI_Alltoallv(from, peer->recv_counts, peer->recv_displs, row, to, peer->send_counts,
                      peer->send_displs, row, MPI_COMM_WORLD);
    else
        MPI_Alltoallv(from, peer->send_counts, peer->send_displs, row, to, peer->recv_counts,
                      peer->recv_displs, row, MPI_COMM_WORLD);
}

static void mpi_group(struct perf_peer *peer, int back)
{
    const struct perf_expert_rows *runs = peer->runs.address;
    int64_t row_bytes = peer->load->row_bytes;

    for (int64_t i = 0; i < (int64_t)peer->num_local * peer->load->size; i++) {
        char *row = (char *)peer->grouped.address + runs[i].place * row_bytes;
        char *block = (char *)peer->blocks.address + runs[i].block * row_bytes;

        memcpy(back ? block : row, back ? row : block, (size_t)(runs[i].num * row_bytes));
    }
}

static void sum_token(struct perf_peer *peer, int token)
{
    const struct perf_load *load = peer->load;
    const int64_t *place = peer->place.address;
    const char *rows[64];
    float weights[64];
    int num = 0;

    for (int64_t i = (int64_t)token * load->top_k; i < (int64_t)(token + 1) * load->top_k; i++)
        if (place[i] >= 0) {
            rows[num] = (char *)peer->packed.address + place[i] * load->row_bytes;
            weights[num++] = load->weights[i];
        }
    perf_peer_sum(load->datatype, rows, weights, num, load->count,
                  (char *)peer->sums.address + token * load->row_bytes);
}

static void mpi_sum(struct perf_peer *peer)
{
    for (int t = 0; t < peer->load->tokens; t++)
        sum_token(peer, t);
}

const struct perf_peer_steps perf_peer_mpi = {
    .create = mpi_create,
    .free = mpi_free,
    .sort_pairs = mpi_sort_pairs,
    .exchange_counts = mpi_exchange_counts,
    .exchange_row_counts = mpi_exchange_row_counts,
    .pack = mpi_pack,
    .exchange_rows = mpi_exchange_rows,
    .group = mpi_group,
    .sum = mpi_sum,
};

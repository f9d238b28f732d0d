/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * epx_perf_peer.c - what one would write without EPX. Route: a counting sort of the pairs by
 * expert, and MPI_Alltoall of the counts. Dispatch: pack a row for each pair in that order,
 * MPI_Alltoallv, and bring the blocks, which arrive by (source, expert), into (expert, source)
 * order. Combine: the same backwards, and a weighted sum of each token's rows at home. All
 * buffers are made once. With blocks_only the rows stay by (source, expert), for a user whose
 * experts do not mind: one copy less each way.
 */
#include <stdlib.h>
#include <string.h>

#include "epx_perf.h"

struct perf_peer {
    const struct perf_bench *bench;
    const struct perf_load *load;
    int blocks_only;
    int num_local, most_local;                  /* experts here, and of the rank that has most */
    MPI_Datatype row;
    int64_t *first;                             /* [experts + 1] place of an expert's first row */
    int64_t *place;                             /* [pairs] row in packed; -1: no expert */
    int *counts_out, *counts_in;                /* [size][most_local] rows of each expert */
    int *send_counts, *send_displs, *recv_counts, *recv_displs; /* [size] rows */
    char *packed;                               /* [pairs] rows at home */
    char *blocks;                               /* rows by (source, expert) */
    char *rows;                                 /* rows by (expert, source); blocks_only: blocks */
    char *sums;
};

static void create_counts(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;

    peer->first = perf_alloc(load->experts + 1, sizeof(*peer->first));
    peer->place = perf_alloc(load->pairs, sizeof(*peer->place));
    peer->counts_out = perf_alloc((int64_t)load->size * peer->most_local, sizeof(int));
    peer->counts_in = perf_alloc((int64_t)load->size * peer->most_local, sizeof(int));
    peer->send_counts = perf_alloc(load->size, sizeof(int));
    peer->send_displs = perf_alloc(load->size, sizeof(int));
    peer->recv_counts = perf_alloc(load->size, sizeof(int));
    peer->recv_displs = perf_alloc(load->size, sizeof(int));
}

static void create_rows(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;

    peer->packed = perf_alloc(load->pairs, load->row_bytes);
    peer->blocks = perf_alloc(load->capacity, load->row_bytes);
    peer->rows = peer->blocks_only ? peer->blocks : perf_alloc(load->capacity, load->row_bytes);
    peer->sums = perf_alloc(load->tokens, load->row_bytes);
}

struct perf_peer *perf_peer_create(const struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    struct perf_peer *peer = perf_alloc(1, sizeof(*peer));

    peer->bench = bench;
    peer->load = load;
    peer->blocks_only = bench->options->peer == PERF_PEER_MPI_BLOCKS;
    peer->num_local =
        perf_first_expert(load, load->rank + 1) - perf_first_expert(load, load->rank);
    peer->most_local = (load->experts + load->size - 1) / load->size;
    MPI_Type_contiguous((int)load->row_bytes, MPI_BYTE, &peer->row);
    MPI_Type_commit(&peer->row);
    create_counts(peer);
    if (bench->tokens)
        create_rows(peer);
    return peer;
}

void perf_peer_free(struct perf_peer *peer)
{
    if (!peer)
        return;
    MPI_Type_free(&peer->row);
    free(peer->sums);
    if (!peer->blocks_only)
        free(peer->rows);
    free(peer->blocks);
    free(peer->packed);
    free(peer->recv_displs);
    free(peer->recv_counts);
    free(peer->send_displs);
    free(peer->send_counts);
    free(peer->counts_in);
    free(peer->counts_out);
    free(peer->place);
    free(peer->first);
    free(peer);
}

/* Stable, so that an expert's rows stand by (token, choice). */
static void sort_pairs(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    int64_t *first = peer->first;

    memset(first, 0, (size_t)(load->experts + 1) * sizeof(*first));
    for (int64_t i = 0; i < load->pairs; i++)
        if (load->ids[i] >= 0)
            first[load->ids[i] + 1]++;
    for (int r = 0, e = 0; r < load->size; r++) {
        int *counts = peer->counts_out + (int64_t)r * peer->most_local;

        for (int j = 0; e < perf_first_expert(load, r + 1); e++, j++)
            counts[j] = (int)first[e + 1];
    }
    for (int e = 0; e < load->experts; e++)
        first[e + 1] += first[e];
    for (int64_t i = 0; i < load->pairs; i++)
        peer->place[i] = load->ids[i] < 0 ? -1 : first[load->ids[i]]++;
}

static void sum_counts(const struct perf_peer *peer, const int *experts, int *counts, int *displs)
{
    for (int r = 0; r < peer->load->size; r++) {
        counts[r] = 0;
        for (int j = 0; j < peer->most_local; j++)
            counts[r] += experts[(int64_t)r * peer->most_local + j];
        displs[r] = r ? displs[r - 1] + counts[r - 1] : 0;
    }
}

void perf_peer_route(struct perf_peer *peer)
{
    sort_pairs(peer);
    MPI_Alltoall(peer->counts_out, peer->most_local, MPI_INT, peer->counts_in, peer->most_local,
                 MPI_INT, peer->load->comm);
    sum_counts(peer, peer->counts_out, peer->send_counts, peer->send_displs);
    sum_counts(peer, peer->counts_in, peer->recv_counts, peer->recv_displs);
}

/* Calls step for the run of rows that each local expert has from each source. */
static void each_run(const struct perf_peer *peer,
                     void (*step)(const struct perf_peer *peer, int expert, char *row, char *block,
                                  int64_t rows))
{
    int64_t row_bytes = peer->load->row_bytes, place = 0;

    for (int j = 0; j < peer->num_local; j++)
        for (int s = 0; s < peer->load->size; s++) {
            const int *counts = peer->counts_in + (int64_t)s * peer->most_local;
            int64_t block = peer->recv_displs[s];

            for (int i = 0; i < j; i++)
                block += counts[i];
            step(peer, j, peer->rows + place * row_bytes, peer->blocks + block * row_bytes,
                 counts[j]);
            place += counts[j];
        }
}

static void group_run(const struct perf_peer *peer, int expert, char *row, char *block,
                      int64_t rows)
{
    (void)expert;
    memcpy(row, block, (size_t)(rows * peer->load->row_bytes));
}

static void ungroup_run(const struct perf_peer *peer, int expert, char *row, char *block,
                        int64_t rows)
{
    (void)expert;
    memcpy(block, row, (size_t)(rows * peer->load->row_bytes));
}

static void scale_run(const struct perf_peer *peer, int expert, char *row, char *block,
                      int64_t rows)
{
    int first = perf_first_expert(peer->load, peer->load->rank);

    perf_scale_rows(peer->load, perf_factor(first + expert), rows,
                    peer->blocks_only ? block : row);
}

/* Token by token: each is read from memory once. */
static void pack(const struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    size_t row_bytes = (size_t)load->row_bytes;
    const char *token = peer->bench->tokens;

    for (int64_t i = 0; i < load->pairs; token += row_bytes)
        for (int64_t end = i + load->top_k; i < end; i++)
            if (peer->place[i] >= 0)
                memcpy(peer->packed + (size_t)peer->place[i] * row_bytes, token, row_bytes);
}

void perf_peer_dispatch(struct perf_peer *peer)
{
    pack(peer);
    MPI_Alltoallv(peer->packed, peer->send_counts, peer->send_displs, peer->row, peer->blocks,
                  peer->recv_counts, peer->recv_displs, peer->row, peer->load->comm);
    if (!peer->blocks_only)
        each_run(peer, group_run);
}

static void sum_token(const struct perf_peer *peer, int token)
{
    const struct perf_load *load = peer->load;
    const char *rows[64];
    float weights[64];
    int num = 0;

    for (int64_t i = (int64_t)token * load->top_k; i < (int64_t)(token + 1) * load->top_k; i++)
        if (peer->place[i] >= 0) {
            rows[num] = peer->packed + peer->place[i] * load->row_bytes;
            weights[num++] = load->weights[i];
        }
    perf_peer_sum(load->datatype, rows, weights, num, load->count,
                  peer->sums + token * load->row_bytes);
}

void perf_peer_combine(struct perf_peer *peer)
{
    if (!peer->blocks_only)
        each_run(peer, ungroup_run);
    MPI_Alltoallv(peer->blocks, peer->recv_counts, peer->recv_displs, peer->row, peer->packed,
                  peer->send_counts, peer->send_displs, peer->row, peer->load->comm);
    for (int t = 0; t < peer->load->tokens; t++)
        sum_token(peer, t);
}

void perf_peer_layer(struct perf_peer *peer)
{
    perf_peer_route(peer);
    perf_peer_dispatch(peer);
    perf_peer_combine(peer);
}

void perf_peer_alltoallv(struct perf_peer *peer)
{
    int size = peer->load->size;

    for (int r = 0; r < size; r++) {
        peer->send_counts[r] = (int)peer->bench->counts[r];
        peer->send_displs[r] = (int)peer->bench->displs[r];
    }
    MPI_Alltoall(peer->send_counts, 1, MPI_INT, peer->recv_counts, 1, MPI_INT, peer->load->comm);
    for (int r = 1; r < size; r++)
        peer->recv_displs[r] = peer->recv_displs[r - 1] + peer->recv_counts[r - 1];
    MPI_Alltoallv(peer->bench->tokens, peer->send_counts, peer->send_displs, peer->row, peer->rows,
                  peer->recv_counts, peer->recv_displs, peer->row, peer->load->comm);
}

void perf_peer_scale(struct perf_peer *peer)
{
    each_run(peer, scale_run);
}

void perf_peer_poison(struct perf_peer *peer, int rows, int sums)
{
    const struct perf_load *load = peer->load;

    if (rows)
        memset(peer->rows, 0xa5, (size_t)(load->capacity * load->row_bytes));
    if (sums)
        memset(peer->sums, 0xa5, (size_t)(load->tokens * load->row_bytes));
}

int64_t perf_peer_num_rows(const struct perf_peer *peer)
{
    int last = peer->load->size - 1;

    return (int64_t)peer->recv_displs[last] + peer->recv_counts[last];
}

const char *perf_peer_rows(const struct perf_peer *peer)
{
    return peer->rows;
}

const char *perf_peer_sums(const struct perf_peer *peer)
{
    return peer->sums;
}

const char *perf_peer_row(const struct perf_peer *peer, int64_t i)
{
    int64_t left = i;

    for (int j = 0; j < peer->num_local && peer->blocks_only; j++)
        for (int s = 0; s < peer->load->size; s++) {
            const int *counts = peer->counts_in + (int64_t)s * peer->most_local;
            int64_t block = peer->recv_displs[s] + left;

            for (int e = 0; e < j; e++)
                block += counts[e];
            if (left < counts[j])
                return peer->blocks + block * peer->load->row_bytes;
            left -= counts[j];
        }
    return peer->rows + i * peer->load->row_bytes;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_peer.c - what one would write without EPX. Route: a counting sort of the pairs by
 * expert, and an exchange of the counts. Dispatch: pack a row for each pair in that order, an
 * alltoallv, and bring the blocks, which arrive by (source, expert), into (expert, source) order.
 * Combine: the steps of dispatch backwards, and a weighted sum of each token's rows at home. All
 * buffers are made once. With blocks_only the rows stay by (source, expert), for a user whose
 * experts do not mind: one copy less each way.
 */
#include "epx_perf/peer/perf_peer.h"

#include <stdio.h>
#include <stdlib.h>

#include "epx_perf/bench/perf_number.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/peer/peer_steps.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

int perf_peer_open(const struct perf_peer_kind *kind)
{
    return kind->steps->open ? kind->steps->open() : 0;
}

void perf_peer_close(const struct perf_peer_kind *kind)
{
    if (kind->steps->close)
        kind->steps->close();
}

static void create(struct perf_peer *peer, struct perf_buffer *buffer, int64_t num, int64_t size)
{
    perf_buffer_create(buffer, peer->bench->options->space, num * size, EPX_COMM_NULL);
}

static void create_counts(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    int64_t num = (int64_t)load->size * peer->most_local;

    create(peer, &peer->place, load->pairs, sizeof(int64_t));
    create(peer, &peer->counts_out, num, sizeof(int));
    create(peer, &peer->counts_in, num, sizeof(int));
    create(peer, &peer->runs, (int64_t)load->size * peer->num_local,
           sizeof(struct perf_expert_rows));
    perf_buffer_image(&peer->counts_out);
    perf_buffer_image(&peer->counts_in);
    perf_buffer_image(&peer->runs);
    peer->send_counts = perf_alloc(load->size, sizeof(int));
    peer->send_displs = perf_alloc(load->size, sizeof(int));
    peer->recv_counts = perf_alloc(load->size, sizeof(int));
    peer->recv_displs = perf_alloc(load->size, sizeof(int));
}

static void create_rows(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;

    create(peer, &peer->packed, load->pairs, load->row_bytes);
    create(peer, &peer->blocks, load->capacity, load->row_bytes);
    if (!peer->kind->blocks_only)
        create(peer, &peer->grouped, load->capacity, load->row_bytes);
    create(peer, &peer->sums, load->tokens, load->row_bytes);
}

/* Whether every rank sends the same number of rows to every rank. */
static int is_even(const struct perf_load *load)
{
    int64_t rows = load->rows_to[0];
    int even = 1;

    ranks_bcast(&rows, sizeof(rows));
    for (int r = 0; r < load->size; r++)
        even &= load->rows_to[r] == rows;
    return (int)ranks_least(even);
}

struct perf_peer *perf_peer_create(struct perf_bench *bench)
{
    const struct perf_load *load = &bench->load;
    const struct perf_peer_kind *kind = bench->options->peer;
    struct perf_peer *peer;

    if (kind->even && !is_even(load)) {
        if (load->rank == 0)
            fprintf(stderr,
                    "epx_perf: --peer %s needs equal counts: --skew even, and tokens "
                    "times top-k a multiple of the ranks\n",
                    kind->name);
        return NULL;
    }
    peer = perf_alloc(1, sizeof(*peer));
    peer->bench = bench;
    peer->load = load;
    peer->kind = kind;
    peer->rows = kind->blocks_only ? &peer->blocks : &peer->grouped;
    peer->num_local = perf_first_expert(load, load->rank + 1) - perf_first_expert(load, load->rank);
    peer->most_local = (load->experts + load->size - 1) / load->size;
    create_counts(peer);
    if (bench->tokens.space)
        create_rows(peer);
    kind->steps->create(peer);
    return peer;
}

void perf_peer_free(struct perf_peer *peer)
{
    if (!peer)
        return;
    peer->kind->steps->free(peer);
    perf_buffer_free(&peer->sums);
    perf_buffer_free(&peer->grouped);
    perf_buffer_free(&peer->blocks);
    perf_buffer_free(&peer->packed);
    free(peer->recv_displs);
    free(peer->recv_counts);
    free(peer->send_displs);
    free(peer->send_counts);
    perf_buffer_free(&peer->runs);
    perf_buffer_free(&peer->counts_in);
    perf_buffer_free(&peer->counts_out);
    perf_buffer_free(&peer->place);
    free(peer);
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

/* Lists where each local expert's rows from each source stand in either order. */
static void list_runs(struct perf_peer *peer)
{
    int size = peer->load->size;
    struct perf_expert_rows *run = peer->runs.image;
    const int *counts = peer->counts_in.image;
    int64_t place = 0;

    for (int j = 0; j < peer->num_local; j++)
        for (int s = 0; s < size; s++, run++) {
            run->num = counts[(int64_t)s * peer->most_local + j];
            run->block = j ? run[-size].block + run[-size].num : peer->recv_displs[s];
            run->place = place;
            place += run->num;
        }
}

void perf_peer_route(struct perf_peer *peer)
{
    const struct perf_peer_steps *steps = peer->kind->steps;

    steps->sort_pairs(peer);
    steps->exchange_counts(peer);
    sum_counts(peer, peer->counts_out.image, peer->send_counts, peer->send_displs);
    sum_counts(peer, peer->counts_in.image, peer->recv_counts, peer->recv_displs);
    list_runs(peer);
    if (steps->take_runs)
        steps->take_runs(peer);
}

void perf_peer_dispatch(struct perf_peer *peer)
{
    const struct perf_peer_steps *steps = peer->kind->steps;

    steps->pack(peer);
    steps->exchange_rows(peer, peer->packed.address, peer->blocks.address, 0);
    if (!peer->kind->blocks_only)
        steps->group(peer, 0);
}

void perf_peer_combine(struct perf_peer *peer)
{
    const struct perf_peer_steps *steps = peer->kind->steps;

    if (!peer->kind->blocks_only)
        steps->group(peer, 1);
    steps->exchange_rows(peer, peer->blocks.address, peer->packed.address, 1);
    steps->sum(peer);
}

void perf_peer_route_dispatch(struct perf_peer *peer)
{
    if (!peer->kind->counted)
        perf_peer_route(peer);
    perf_peer_dispatch(peer);
}

void perf_peer_layer(struct perf_peer *peer)
{
    perf_peer_route_dispatch(peer);
    perf_peer_combine(peer);
}

static void count_rows(struct perf_peer *peer)
{
    const int64_t *to, *from;

    peer->kind->steps->exchange_row_counts(peer, &to, &from);
    for (int r = 0; r < peer->load->size; r++) {
        peer->send_counts[r] = (int)to[r];
        peer->recv_counts[r] = (int)from[r];
        peer->send_displs[r] = r ? peer->send_displs[r - 1] + peer->send_counts[r - 1] : 0;
        peer->recv_displs[r] = r ? peer->recv_displs[r - 1] + peer->recv_counts[r - 1] : 0;
    }
}

void perf_peer_alltoallv(struct perf_peer *peer)
{
    if (!peer->kind->counted)
        count_rows(peer);
    peer->kind->steps->exchange_rows(peer, peer->bench->tokens.address, peer->rows->address, 0);
}

void perf_peer_learn(struct perf_peer *peer)
{
    if (peer->bench->options->verb->by_pairs)
        count_rows(peer);
    else
        perf_peer_route(peer);
}

/* The runs say where the rows of an expert stand, in either order. */
void perf_peer_scale(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    const struct perf_expert_rows *runs = peer->runs.image;
    char *rows = perf_buffer_fetch(peer->rows);
    int first = perf_first_expert(load, load->rank);

    for (int64_t i = 0; i < (int64_t)peer->num_local * load->size; i++) {
        int64_t row = peer->kind->blocks_only ? runs[i].block : runs[i].place;

        perf_scale_rows(load, perf_factor(first + i / load->size), runs[i].num,
                        rows + row * load->row_bytes);
    }
    perf_buffer_send(peer->rows);
}

void perf_peer_poison(struct perf_peer *peer, int rows, int sums)
{
    if (rows)
        perf_buffer_poison(peer->rows);
    if (sums)
        perf_buffer_poison(&peer->sums);
}

void perf_peer_fetch(struct perf_peer *peer, int rows, int sums)
{
    if (rows)
        perf_buffer_fetch(peer->rows);
    if (sums)
        perf_buffer_fetch(&peer->sums);
}

int64_t perf_peer_num_rows(const struct perf_peer *peer)
{
    int last = peer->load->size - 1;

    return (int64_t)peer->recv_displs[last] + peer->recv_counts[last];
}

const char *perf_peer_rows(const struct perf_peer *peer)
{
    return peer->rows->image;
}

const char *perf_peer_sums(const struct perf_peer *peer)
{
    return peer->sums.image;
}

const char *perf_peer_row(const struct perf_peer *peer, int64_t i)
{
    const struct perf_expert_rows *run = peer->runs.image;
    int64_t row = i;

    if (peer->kind->blocks_only) {
        while (i >= run->place + run->num)
            run++;
        row = run->block + i - run->place;
    }
    return perf_peer_rows(peer) + row * peer->load->row_bytes;
}

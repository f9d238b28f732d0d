/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_cuda.c - the steps before and after messages that all peers on GPUs share. */
#include "epx_perf/peer/peer_cuda.h"

#include <stdlib.h>

#include "epx_perf/peer/peer_kernels.h"
#include "epx_perf/space/perf_alloc.h"
#include "epx_perf/space/perf_must.h"

static int num_chunks(const struct perf_load *load)
{
    return (int)((load->pairs + PERF_CHUNK_PAIRS - 1) / PERF_CHUNK_PAIRS);
}

static void create(struct perf_peer *peer, struct perf_buffer *buffer, int64_t bytes)
{
    perf_buffer_create(buffer, peer->bench->options->space, bytes, EPX_COMM_NULL);
}

void perf_cuda_create(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    struct perf_cuda_state *state = perf_alloc(1, sizeof(*state));
    int64_t experts = load->experts * (int64_t)sizeof(int);

    peer->state = state;
    create(peer, &state->first, experts);
    create(peer, &state->chunks, num_chunks(load) * experts);
    create(peer, &state->rows_to, load->size * (int64_t)sizeof(int64_t));
    create(peer, &state->rows_from, load->size * (int64_t)sizeof(int64_t));
    perf_buffer_image(&state->rows_to);
    perf_buffer_image(&state->rows_from);
}

void perf_cuda_free(struct perf_peer *peer)
{
    struct perf_cuda_state *state = peer->state;

    perf_buffer_free(&state->rows_from);
    perf_buffer_free(&state->rows_to);
    perf_buffer_free(&state->chunks);
    perf_buffer_free(&state->first);
    free(state);
}

void perf_cuda_copy(struct perf_peer *peer, void *to, const void *from, int64_t bytes)
{
    perf_must(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, peer->bench->stream),
              "cudaMemcpyAsync");
}

void perf_cuda_wait(struct perf_peer *peer)
{
    perf_must(cudaStreamSynchronize(peer->bench->stream), "cudaStreamSynchronize");
}

void perf_cuda_sort_pairs(struct perf_peer *peer)
{
    const struct perf_load *load = peer->load;
    const struct perf_cuda_state *state = peer->state;
    struct perf_sort sort = {.ids = perf_bench_ids(peer->bench),
                             .place = peer->place.address,
                             .chunks = state->chunks.address,
                             .first = state->first.address,
                             .counts_out = peer->counts_out.address,
                             .pairs = load->pairs,
                             .num_chunks = num_chunks(load),
                             .experts = load->experts,
                             .size = load->size,
                             .most_local = peer->most_local};

    perf_launch_sort(&sort, peer->bench->stream);
}

/* Copies the runs to the GPU. Needs no wait: the image is not written again before the next wait
 * for counts. */
void perf_cuda_take_runs(struct perf_peer *peer)
{
    if (peer->runs.bytes)
        perf_cuda_copy(peer, peer->runs.address, peer->runs.image, peer->runs.bytes);
}

static struct perf_home_rows home_rows(const struct perf_peer *peer, void *tokens)
{
    const struct perf_load *load = peer->load;
    struct perf_home_rows rows = {.tokens = tokens,
                                  .packed = peer->packed.address,
                                  .place = peer->place.address,
                                  .weights = peer->bench->token_weights.address,
                                  .row_bytes = load->row_bytes,
                                  .num_tokens = load->tokens,
                                  .top_k = load->top_k};

    return rows;
}

void perf_cuda_pack(struct perf_peer *peer)
{
    struct perf_home_rows rows = home_rows(peer, peer->bench->tokens.address);

    perf_launch_pack(&rows, peer->bench->stream);
}

void perf_cuda_sum(struct perf_peer *peer)
{
    struct perf_home_rows rows = home_rows(peer, peer->sums.address);

    perf_launch_sum(&rows, peer->load->datatype, peer->bench->stream);
}

void perf_cuda_group(struct perf_peer *peer, int back)
{
    struct perf_group group = {.grouped = peer->grouped.address,
                               .blocks = peer->blocks.address,
                               .runs = peer->runs.address,
                               .row_bytes = peer->load->row_bytes,
                               .num_runs = peer->num_local * peer->load->size,
                               .back = back};

    perf_launch_group(&group, peer->bench->stream);
}

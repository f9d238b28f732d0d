/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * count_pairs_host.c - pairs of each expert and unique rows of each rank.
 * Work: num_tokens * top_k. Reads ids, owner; writes experts, a row of the count matrix and bad.
 */
#include "kernels/host/host_kernels.h"

static void note_bad(struct epx_bad_id *bad, int32_t token, int32_t choice, int64_t value)
{
    if (bad->pairs++ == 0) {
        bad->token = token;
        bad->choice = choice;
        bad->value = value;
    }
}

/* Counts the pairs of one token. No branch on whether a pair is the first to its rank: processors
 * cannot foresee it. */
static void count_token(const struct epx_count_pairs *a, int32_t *rows, int32_t token)
{
    int64_t first = (int64_t)token * a->top_k;

    for (int32_t k = 0; k < a->top_k; k++) {
        int64_t id = epx_expert_id(a->ids, a->index_bits, first + k);
        int32_t rank;

        if (id < 0 || id >= a->shape.num_experts) {
            a->experts[first + k] = -1;
            if (id != -1)
                note_bad(a->bad, token, k, id);
            continue;
        }
        rank = a->owner[id];
        a->experts[first + k] = (int32_t)id;
        a->counts[id]++;
        rows[rank] += a->last_token[rank] != token;
        a->last_token[rank] = token;
    }
}

void epx_count_pairs_host(const struct epx_count_pairs *a)
{
    const struct epx_count_pairs args = *a; /* no store can alias a local copy */
    int32_t *rows = epx_unique_rows(a->counts, a->shape);

    memset(a->counts, 0, epx_count_words(a->shape) * sizeof(*a->counts));
    memset(a->last_token, 0xff, (size_t)a->shape.num_ranks * sizeof(*a->last_token));
    a->bad->pairs = 0;
    for (int32_t t = 0; t < a->num_tokens; t++)
        count_token(&args, rows, t);
    *epx_num_tokens(a->counts, a->shape) = a->num_tokens;
    *epx_capacity_word(a->counts, a->shape) = a->capacity;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reference.h - what every rank must see, computed serially from the expert ids of all ranks by
 * walking experts, ranks, tokens and choices in the order of the contract. The reference shares no
 * code with the library: its arithmetic is double precision rounded to the type wanted.
 */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "support/data.h"

struct ref_input {
    int ranks, experts, top_k, max_tokens, alignment;
    EPX_Layout layout;
    EPX_Overflow overflow;
    int ranks_per_node;           /* 0 = as nodes says */
    const int64_t *recv_capacity; /* [ranks], 0 = the worst case */
    const int *tokens;            /* [ranks] */
    int64_t *const *ids;          /* [ranks] -> [tokens][top_k] */
    const int *nodes;             /* [ranks] numbered by lowest rank; NULL = one node */
    int zero_unused;
    int wide_partials;       /* sums that travel are float32 where they would be shorter */
    int by_choice;           /* sums of ranks and nodes are added by their last choice */
    int64_t rows_per_expert; /* EPX_EXPERT_SLAB */
    int distinct;            /* the worst case is that of tokens which name no expert twice */
};

/* What one rank's view must say. */
struct ref_rank {
    int first_expert, num_experts;
    int64_t capacity, num_rows, required_rows;
    int64_t status_rows; /* that a routing or dispatch reports */
    int32_t *expert_counts;
    int64_t *expert_offsets;
    int32_t *rank_counts;
    int32_t *slots;
    int32_t *row_expert_ids;
    int32_t *row_tokens, *row_ranks;
    int32_t *row_choices; /* expert-major: the choice that a row came from */
    int64_t dropped_rows; /* pairs of this home rank (rank-major: unique rows) without room */
    int bad_ids;
    int bad_token, bad_choice; /* the first one */
};

struct ref {
    struct ref_input in;
    struct ref_rank *rank;
    int overflow;     /* a rank lacks room */
    int truncated;    /* and the policy is to fail */
    int short_expert; /* slabs: the first expert without room, -1 = none, and its pairs */
    int64_t short_pairs;
};

struct ref *ref_create(const struct ref_input *input);
void ref_free(struct ref *ref);
int64_t ref_worst_capacity(const struct ref_input *input, int rank);
int ref_owner(const struct ref_input *input, int64_t expert);

/*
 * The outputs of rank me, written over what expected holds. The weights of rank r's row or pair
 * i are data_weight(seed, r, i); weight_seed NULL means none. Outputs may be NULL.
 */
void ref_dispatch(const struct ref *ref, int me, const struct data *send,
                  const uint64_t *weight_seed, void *recvbuf, float *recv_weights);
void ref_combine(const struct ref *ref, int me, const struct data *send,
                 const uint64_t *weight_seed, void *recvbuf);
/* A combine to which the home rank gives something: rows that the sums start from, or the weights
 * of its pairs, data_weight(seed, me, pair). */
struct ref_home {
    int num_biases, token_weighted;
    const struct data *biases;
};
void ref_combine_from(const struct ref *ref, int me, const struct data *send,
                      const uint64_t *weight_seed, const struct ref_home *home, void *recvbuf);
void ref_grad_weights(const struct ref *ref, int me, uint64_t weight_seed, float *grad_weights);
void ref_combine_backward(const struct ref *ref, int me, const struct data *grad,
                          const uint64_t *weight_seed, void *grad_sendbuf);
void ref_grad_slot_weights(const struct ref *ref, int me, const struct data *grad,
                           const struct data *send, float *grad_slot_weights);

/* ref_load returns element i of a row; ref_store rounds a number to nearest even into it. */
double ref_load(EPX_Datatype datatype, const void *row, int64_t i);
void ref_store(EPX_Datatype datatype, void *row, int64_t i, double value);

#endif

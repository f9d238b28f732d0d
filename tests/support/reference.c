/* SPDX-License-Identifier: BSD-3-Clause */
/* reference.c - what every rank must see, computed serially. */
#include "support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double float16_value(uint16_t bits)
{
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;

    if (exponent == 31)
        return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, -24);
    return sign * ldexp(1024 + mantissa, exponent - 25);
}

static uint16_t float16_bits(double value)
{
    unsigned sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    int exponent;

    if (isnan(value))
        return 0x7e00;
    if (isinf(value))
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < ldexp(1, -14))
        return (uint16_t)(sign | (unsigned)ldexp(magnitude, 24));
    frexp(magnitude, &exponent);
    return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 |
                      ((unsigned)ldexp(magnitude, 11 - exponent) - 1024));
}

/* Returns 2 to a power from -1022 to 1023, which ldexp would take longer for. */
static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;

    memcpy(&power, &bits, 8);
    return power;
}

/* Returns what frexp says of a number that no conversion to double has made subnormal. */
static int exponent_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, 8);
    return (int)(bits >> 52 & 2047) - 1022;
}

/* Rounds to a multiple of the type's spacing at this magnitude: ties go to the even multiple. */
static double round_to(double value, int digits, int lowest_exponent, double largest)
{
    double rounded;
    int exponent;

    if (value == 0 || isnan(value) || isinf(value))
        return value;
    exponent = exponent_of(value) - digits;
    exponent = exponent > lowest_exponent ? exponent : lowest_exponent;
    rounded = nearbyint(value * power_of_two(-exponent)) * power_of_two(exponent);
    return fabs(rounded) > largest ? copysign((double)INFINITY, value) : rounded;
}

static double round_to_type(EPX_Datatype datatype, double value)
{
    switch (datatype) {
    case EPX_FLOAT16: return round_to(value, 11, -24, 65504.0);
    case EPX_BFLOAT16: return round_to(value, 8, -133, ldexp(255, 120));
    case EPX_FLOAT32: return (double)(float)value;
    default: return value;
    }
}

/* A product or a sum, rounded as the type's arithmetic does. */
static double rounded(EPX_Datatype datatype, double value)
{
    return datatype == EPX_FLOAT64 ? value : (double)(float)value;
}

double ref_load(EPX_Datatype datatype, const void *row, int64_t i)
{
    uint16_t half;
    uint32_t single;
    float value;
    double wide;

    if (datatype == EPX_FLOAT64) {
        memcpy(&wide, (const char *)row + 8 * i, 8);
        return wide;
    }
    if (datatype == EPX_FLOAT32) {
        memcpy(&value, (const char *)row + 4 * i, 4);
        return (double)value;
    }
    memcpy(&half, (const char *)row + 2 * i, 2);
    if (datatype == EPX_FLOAT16)
        return float16_value(half);
    single = (uint32_t)half << 16;
    memcpy(&value, &single, 4);
    return (double)value;
}

void ref_store(EPX_Datatype datatype, void *row, int64_t i, double value)
{
    double exact = round_to_type(datatype, value);
    float narrow = (float)exact;
    uint16_t half = datatype == EPX_FLOAT16 ? float16_bits(exact) : 0;
    uint32_t single;

    if (datatype == EPX_FLOAT64)
        memcpy((char *)row + 8 * i, &exact, 8);
    else if (datatype == EPX_FLOAT32)
        memcpy((char *)row + 4 * i, &narrow, 4);
    if (datatype == EPX_BFLOAT16) {
        memcpy(&single, &narrow, 4);
        half = (uint16_t)(single >> 16);
    }
    if (datatype == EPX_FLOAT16 || datatype == EPX_BFLOAT16)
        memcpy((char *)row + 2 * i, &half, 2);
}

static int first_expert(const struct ref_input *in, int rank)
{
    return (int)((int64_t)rank * in->experts / in->ranks);
}

int ref_owner(const struct ref_input *in, int64_t expert)
{
    int rank = 0;

    while (first_expert(in, rank + 1) <= expert)
        rank++;
    return rank;
}

int64_t ref_worst_capacity(const struct ref_input *in, int rank)
{
    int local = first_expert(in, rank + 1) - first_expert(in, rank);
    int per_token = in->distinct && local < in->top_k ? local : in->top_k;

    if (local == 0)
        return 0;
    if (in->layout == EPX_RANK_MAJOR)
        return (int64_t)in->ranks * in->max_tokens;
    if (in->layout == EPX_EXPERT_SLAB)
        return local * in->rows_per_expert;
    return (int64_t)in->ranks * in->max_tokens * per_token + (int64_t)local * (in->alignment - 1);
}

/* The expert of a pair, or -1 if it names none. */
static int64_t expert_of(const struct ref_input *in, int rank, int token, int choice)
{
    int64_t id = in->ids[rank][(int64_t)token * in->top_k + choice];

    return id < 0 || id >= in->experts ? -1 : id;
}

static int owns(const struct ref_rank *at, int64_t expert)
{
    return expert >= at->first_expert && expert < at->first_expert + at->num_experts;
}

static int32_t *filled(int64_t n, int32_t value)
{
    int32_t *array = malloc((size_t)(n + 1) * sizeof(*array));

    for (int64_t i = 0; i < n; i++)
        array[i] = value;
    return array;
}

static void note_bad_ids(const struct ref_input *in, int rank, struct ref_rank *at)
{
    for (int t = in->tokens[rank] - 1; t >= 0; t--)
        for (int k = in->top_k - 1; k >= 0; k--) {
            int64_t id = in->ids[rank][(int64_t)t * in->top_k + k];

            if (id < -1 || id >= in->experts) {
                at->bad_ids++;
                at->bad_token = t;
                at->bad_choice = k;
            }
        }
}

static void init_rank(const struct ref_input *in, int rank, struct ref_rank *at)
{
    at->first_expert = first_expert(in, rank);
    at->num_experts = first_expert(in, rank + 1) - at->first_expert;
    at->capacity = ref_worst_capacity(in, rank);
    if (in->recv_capacity[rank] && in->recv_capacity[rank] < at->capacity)
        at->capacity = in->recv_capacity[rank];
    at->expert_counts = filled(at->num_experts, 0);
    at->expert_offsets = calloc((size_t)at->num_experts + 1, sizeof(int64_t));
    at->rank_counts = filled(in->ranks, 0);
    at->slots = filled((int64_t)in->max_tokens * in->top_k, -1);
    at->row_expert_ids = filled(at->capacity * in->top_k, -1);
    at->row_tokens = filled(at->capacity, -1);
    at->row_ranks = filled(at->capacity, -1);
    at->row_choices = filled(at->capacity, -1);
    note_bad_ids(in, rank, at);
}

/* Gives a pair its row, if that is below the limit. Returns whether the row counts. */
static int place(struct ref *ref, struct ref_rank *at, int64_t row, int64_t limit, int source,
                 int t, int k)
{
    if (row >= limit)
        return ref->in.overflow == EPX_OVERFLOW_ERROR;
    at->row_ranks[row] = source;
    at->row_tokens[row] = t;
    at->row_choices[row] = k;
    ref->rank[source].slots[(int64_t)t * ref->in.top_k + k] = (int32_t)row;
    return 1;
}

static int64_t place_expert(struct ref *ref, struct ref_rank *at, int64_t row, int64_t limit,
                            int expert)
{
    const struct ref_input *in = &ref->in;

    for (int s = 0; s < in->ranks; s++)
        for (int t = 0; t < in->tokens[s]; t++)
            for (int k = 0; k < in->top_k; k++) {
                if (expert_of(in, s, t, k) != expert)
                    continue;
                at->expert_counts[expert - at->first_expert] += place(ref, at, row, limit, s, t, k);
                ref->rank[s].dropped_rows += row >= limit;
                row++;
            }
    return row;
}

static void place_by_expert(struct ref *ref, struct ref_rank *at)
{
    int64_t row = 0;

    for (int j = 0; j < at->num_experts; j++) {
        at->expert_offsets[j] = row < at->capacity ? row : at->capacity;
        row = place_expert(ref, at, row, at->capacity, at->first_expert + j);
        while (row % ref->in.alignment)
            row++;
    }
    at->required_rows = row;
    at->num_rows = row < at->capacity ? row : at->capacity;
    at->status_rows = at->num_rows;
    at->expert_offsets[at->num_experts] = at->num_rows;
}

static void place_in_slabs(struct ref *ref, struct ref_rank *at)
{
    const int64_t room = ref->in.rows_per_expert;
    int64_t most = 0;

    for (int j = 0; j < at->num_experts; j++) {
        int64_t start = j * room;
        int64_t pairs = place_expert(ref, at, start, start + room, at->first_expert + j) - start;

        at->expert_offsets[j] = start;
        at->status_rows += at->expert_counts[j];
        most = pairs > most ? pairs : most;
        if (pairs > room && ref->short_expert < 0) {
            ref->short_expert = at->first_expert + j;
            ref->short_pairs = pairs;
        }
    }
    at->required_rows = at->num_experts * most;
    at->num_rows = at->expert_offsets[at->num_experts] = at->num_experts * room;
}

static int pairs_on(const struct ref_input *in, const struct ref_rank *at, int source, int token)
{
    int pairs = 0;

    for (int k = 0; k < in->top_k; k++)
        pairs += owns(at, expert_of(in, source, token, k));
    return pairs;
}

static void place_unique_row(struct ref *ref, struct ref_rank *at, int64_t row, int s, int t)
{
    for (int k = 0; k < ref->in.top_k; k++) {
        int64_t expert = expert_of(&ref->in, s, t, k);

        if (!owns(at, expert))
            continue;
        at->expert_counts[expert - at->first_expert] += place(ref, at, row, at->capacity, s, t, k);
        if (row < at->capacity)
            at->row_expert_ids[row * ref->in.top_k + k] = (int32_t)(expert - at->first_expert);
    }
    ref->rank[s].dropped_rows += row >= at->capacity;
}

static void place_by_rank(struct ref *ref, struct ref_rank *at)
{
    int64_t row = 0;

    for (int s = 0; s < ref->in.ranks; s++)
        for (int t = 0; t < ref->in.tokens[s]; t++)
            if (pairs_on(&ref->in, at, s, t))
                place_unique_row(ref, at, row++, s, t);
    at->required_rows = row;
    at->num_rows = row < at->capacity ? row : at->capacity;
    at->status_rows = at->num_rows;
}

static void count_unique_rows(const struct ref_input *in, struct ref_rank *at)
{
    for (int s = 0; s < in->ranks; s++)
        for (int t = 0; t < in->tokens[s]; t++)
            at->rank_counts[s] += pairs_on(in, at, s, t) > 0;
}

/* The view of a routing that failed is that of one without tokens, but for required_rows. */
static void empty_view(const struct ref_input *in, struct ref_rank *at)
{
    memset(at->expert_counts, 0, (size_t)at->num_experts * sizeof(*at->expert_counts));
    memset(at->rank_counts, 0, (size_t)in->ranks * sizeof(*at->rank_counts));
    for (int64_t i = 0; i < (int64_t)in->max_tokens * in->top_k; i++)
        at->slots[i] = -1;
    for (int64_t i = 0; i < at->capacity; i++)
        at->row_tokens[i] = at->row_ranks[i] = at->row_choices[i] = -1;
    at->status_rows = 0;
    if (in->layout == EPX_EXPERT_SLAB)
        return;
    memset(at->expert_offsets, 0, (size_t)(at->num_experts + 1) * sizeof(*at->expert_offsets));
    at->num_rows = 0;
}

struct ref *ref_create(const struct ref_input *input)
{
    struct ref *ref = calloc(1, sizeof(*ref));

    ref->in = *input;
    ref->short_expert = -1;
    ref->rank = calloc((size_t)input->ranks, sizeof(*ref->rank));
    for (int r = 0; r < input->ranks; r++)
        init_rank(input, r, &ref->rank[r]);
    for (int r = 0; r < input->ranks; r++) {
        struct ref_rank *at = &ref->rank[r];

        if (input->layout == EPX_RANK_MAJOR)
            place_by_rank(ref, at);
        else if (input->layout == EPX_EXPERT_SLAB)
            place_in_slabs(ref, at);
        else
            place_by_expert(ref, at);
        count_unique_rows(input, at);
        ref->overflow |= at->required_rows > at->capacity;
    }
    ref->truncated = ref->overflow && input->overflow == EPX_OVERFLOW_ERROR;
    for (int r = 0; ref->truncated && r < input->ranks; r++)
        empty_view(input, &ref->rank[r]);
    return ref;
}

void ref_free(struct ref *ref)
{
    for (int r = 0; ref && r < ref->in.ranks; r++) {
        free(ref->rank[r].expert_counts);
        free(ref->rank[r].expert_offsets);
        free(ref->rank[r].rank_counts);
        free(ref->rank[r].slots);
        free(ref->rank[r].row_expert_ids);
        free(ref->rank[r].row_tokens);
        free(ref->rank[r].row_ranks);
        free(ref->rank[r].row_choices);
    }
    if (ref)
        free(ref->rank);
    free(ref);
}

/* Rows of the receive buffer that dispatch and combine backward write. */
static int64_t written_rows(const struct ref *ref, const struct ref_rank *at)
{
    return ref->in.zero_unused ? at->capacity : at->num_rows;
}

/* Whether they leave a row alone: nothing arrives in it, and it is no padding. */
static int is_left_alone(const struct ref *ref, const struct ref_rank *at, int64_t row)
{
    return at->row_ranks[row] < 0 && ref->in.layout == EPX_EXPERT_SLAB && !ref->in.zero_unused;
}

static void dispatched_weights(const struct ref *ref, const struct ref_rank *at, int64_t row,
                               uint64_t seed, float *recv_weights)
{
    int home = at->row_ranks[row], top_k = ref->in.top_k;
    int64_t pair = (int64_t)at->row_tokens[row] * top_k;

    if (ref->in.layout != EPX_RANK_MAJOR) {
        recv_weights[row] = home < 0 ? 0 : data_weight(seed, home, pair + at->row_choices[row]);
        return;
    }
    for (int k = 0; k < top_k; k++)
        recv_weights[row * top_k + k] =
            at->row_expert_ids[row * top_k + k] < 0 ? 0 : data_weight(seed, home, pair + k);
}

void ref_dispatch(const struct ref *ref, int me, const struct data *send,
                  const uint64_t *weight_seed, void *recvbuf, float *recv_weights)
{
    const struct ref_rank *at = &ref->rank[me];
    size_t row_bytes = data_row_bytes(send);

    for (int64_t row = 0; row < written_rows(ref, at); row++) {
        char *out = (char *)recvbuf + (size_t)row * row_bytes;

        if (is_left_alone(ref, at, row))
            continue;
        if (at->row_ranks[row] < 0)
            memset(out, 0, row_bytes);
        else
            data_row(send, at->row_ranks[row], at->row_tokens[row], out);
        if (weight_seed && recv_weights)
            dispatched_weights(ref, at, row, *weight_seed, recv_weights);
    }
}

/* A sum that starts from its first term. */
struct sum {
    int terms, count;
    double *value;
};

static void sum_init(struct sum *sum, int count)
{
    sum->terms = 0;
    sum->count = count;
    sum->value = calloc((size_t)count + 1, sizeof(double));
}

static void sum_add(EPX_Datatype datatype, struct sum *sum, const double *term)
{
    for (int i = 0; i < sum->count; i++)
        sum->value[i] = sum->terms ? rounded(datatype, sum->value[i] + term[i]) : term[i];
    sum->terms++;
}

static void sum_round(EPX_Datatype datatype, struct sum *sum)
{
    for (int i = 0; i < sum->count; i++)
        sum->value[i] = round_to_type(datatype, sum->value[i]);
}

struct combine {
    const struct ref *ref;
    const struct data *send;
    const uint64_t *weight_seed;
    const struct ref_home *home;
    int me;
    void *row;
    double *term;
};

/* What sums are rounded to before they travel. */
static EPX_Datatype partial_type(const struct combine *c)
{
    EPX_Datatype datatype = c->send->datatype;
    int is_short = datatype == EPX_FLOAT16 || datatype == EPX_BFLOAT16;

    return c->ref->in.wide_partials && is_short ? EPX_FLOAT32 : datatype;
}

static double weight_of(const struct combine *c, int64_t pair, int rank, int64_t slot)
{
    if (!c->weight_seed)
        return 1;
    return (double)(c->home->token_weighted ? data_weight(*c->weight_seed, c->me, pair)
                                            : data_weight(*c->weight_seed, rank, slot));
}

/* Adds the row of a pair on a rank, times its weight. */
static void add_row(const struct combine *c, int64_t pair, int rank, struct sum *partial)
{
    EPX_Datatype datatype = c->send->datatype;
    int64_t slot = c->ref->rank[c->me].slots[pair];
    double weight = weight_of(c, pair, rank, slot);

    data_row(c->send, rank, slot, c->row);
    for (int i = 0; i < c->send->count; i++) {
        double x = ref_load(datatype, c->row, i);

        c->term[i] = c->weight_seed ? rounded(datatype, weight * x) : x;
    }
    sum_add(datatype, partial, c->term);
}

/* Whether a rank has the row of a choice of a token. */
static int has_choice(const struct combine *c, int token, int rank, int k)
{
    const struct ref *ref = c->ref;

    return ref->rank[c->me].slots[(int64_t)token * ref->in.top_k + k] >= 0 &&
           owns(&ref->rank[rank], expert_of(&ref->in, c->me, token, k));
}

static void add_rank(const struct combine *c, int token, int rank, struct sum *node)
{
    const struct ref *ref = c->ref;
    struct sum partial;

    sum_init(&partial, c->send->count);
    for (int k = 0; k < ref->in.top_k; k++) {
        if (!has_choice(c, token, rank, k))
            continue;
        add_row(c, (int64_t)token * ref->in.top_k + k, rank, &partial);
        if (ref->in.layout == EPX_RANK_MAJOR)
            break;
    }
    if (partial.terms) {
        sum_round(partial_type(c), &partial);
        sum_add(c->send->datatype, node, partial.value);
    }
    free(partial.value);
}

static int node_of(const struct ref_input *in, int rank)
{
    if (in->ranks_per_node)
        return rank / in->ranks_per_node;
    return in->nodes ? in->nodes[rank] : 0;
}

/* The last choice of a token that a rank of a node has, or, for rank -1, any rank of the node. */
static int last_choice(const struct combine *c, int token, int node, int rank)
{
    int last = -1;

    for (int k = 0; k < c->ref->in.top_k; k++)
        for (int r = 0; r < c->ref->in.ranks; r++)
            if ((rank < 0 || r == rank) && node_of(&c->ref->in, r) == node &&
                has_choice(c, token, r, k))
                last = k;
    return last;
}

/* How often all ranks, or nodes, are walked through: once, or for each last choice. */
static int num_walks(const struct combine *c)
{
    return c->ref->in.by_choice ? c->ref->in.top_k : 1;
}

static void add_ranks_of(const struct combine *c, int token, int node, struct sum *sum)
{
    const struct ref_input *in = &c->ref->in;

    for (int walk = 0; walk < num_walks(c); walk++)
        for (int rank = 0; rank < in->ranks; rank++)
            if (node_of(in, rank) == node &&
                (!in->by_choice || last_choice(c, token, node, rank) == walk))
                add_rank(c, token, rank, sum);
}

/* Biases are followed by the partials of the home's own node, one by one, if these come first. */
static void add_node(const struct combine *c, int token, int node, struct sum *total)
{
    const struct ref_input *in = &c->ref->in;
    struct sum sum;

    if (total->terms && total->terms == c->home->num_biases && node == node_of(in, c->me)) {
        add_ranks_of(c, token, node, total);
        return;
    }
    sum_init(&sum, c->send->count);
    add_ranks_of(c, token, node, &sum);
    if (sum.terms) {
        if (node_of(in, c->me) != node)
            sum_round(partial_type(c), &sum);
        sum_add(c->send->datatype, total, sum.value);
    }
    free(sum.value);
}

static void add_bias(const struct combine *c, int token, const struct data *bias, struct sum *total)
{
    data_row(bias, c->me, token, c->row);
    for (int i = 0; i < bias->count; i++)
        c->term[i] = ref_load(bias->datatype, c->row, i);
    sum_add(bias->datatype, total, c->term);
}

static void combine_token(const struct combine *c, int token, char *out)
{
    const struct ref_input *in = &c->ref->in;
    struct sum total;

    sum_init(&total, c->send->count);
    for (int b = 0; b < c->home->num_biases; b++)
        add_bias(c, token, &c->home->biases[b], &total);
    for (int walk = 0; walk < num_walks(c); walk++)
        for (int node = 0; node < in->ranks; node++)
            if (!in->by_choice || last_choice(c, token, node, -1) == walk)
                add_node(c, token, node, &total);
    for (int i = 0; i < c->send->count; i++)
        ref_store(c->send->datatype, out, i, total.value[i]);
    free(total.value);
}

void ref_combine(const struct ref *ref, int me, const struct data *send,
                 const uint64_t *weight_seed, void *recvbuf)
{
    const struct ref_home nothing = {0};

    ref_combine_from(ref, me, send, weight_seed, &nothing, recvbuf);
}

void ref_combine_from(const struct ref *ref, int me, const struct data *send,
                      const uint64_t *weight_seed, const struct ref_home *home, void *recvbuf)
{
    struct combine c = {ref, send, weight_seed, home, me, NULL, NULL};
    size_t row_bytes = data_row_bytes(send);

    c.row = malloc(row_bytes + 8);
    c.term = malloc(((size_t)send->count + 1) * sizeof(double));
    for (int t = 0; t < ref->in.tokens[me]; t++)
        combine_token(&c, t, (char *)recvbuf + (size_t)t * row_bytes);
    free(c.row);
    free(c.term);
}

void ref_grad_weights(const struct ref *ref, int me, uint64_t weight_seed, float *grad_weights)
{
    int top_k = ref->in.top_k;

    for (int t = 0; t < ref->in.tokens[me]; t++)
        for (int k = 0; k < top_k; k++) {
            int64_t pair = (int64_t)t * top_k + k, slot = ref->rank[me].slots[pair];
            int64_t index = ref->in.layout == EPX_RANK_MAJOR ? slot * top_k + k : slot;

            grad_weights[pair] = 0;
            if (slot >= 0)
                grad_weights[pair] = data_weight(
                    weight_seed, ref_owner(&ref->in, expert_of(&ref->in, me, t, k)), index);
        }
}

void ref_combine_backward(const struct ref *ref, int me, const struct data *grad,
                          const uint64_t *weight_seed, void *grad_sendbuf)
{
    const struct ref_rank *at = &ref->rank[me];
    size_t row_bytes = data_row_bytes(grad);
    EPX_Datatype datatype = grad->datatype;

    for (int64_t row = 0; row < written_rows(ref, at); row++) {
        double weight = weight_seed ? (double)data_weight(*weight_seed, me, row) : 1;
        char *out = (char *)grad_sendbuf + (size_t)row * row_bytes;

        if (is_left_alone(ref, at, row))
            continue;
        memset(out, 0, row_bytes);
        if (at->row_ranks[row] < 0)
            continue;
        data_row(grad, at->row_ranks[row], at->row_tokens[row], out);
        for (int i = 0; weight_seed && i < grad->count; i++)
            ref_store(datatype, out, i, rounded(datatype, weight * ref_load(datatype, out, i)));
    }
}

/* One block of 1024 products: 256 lanes of up to four, then halving. */
static double block_dot(EPX_Datatype datatype, const void *a, const void *b, int from, int count)
{
    double lane[256] = {0};

    for (int i = 0; i < 1024 && from + i < count; i++) {
        double x = ref_load(datatype, a, from + i), y = ref_load(datatype, b, from + i);

        lane[i % 256] = rounded(datatype, lane[i % 256] + rounded(datatype, x * y));
    }
    for (int width = 128; width > 0; width /= 2)
        for (int j = 0; j < width; j++)
            lane[j] = rounded(datatype, lane[j] + lane[j + width]);
    return lane[0];
}

static float row_dot(EPX_Datatype datatype, const void *a, const void *b, int count)
{
    double total = 0;

    for (int from = 0; from < count; from += 1024)
        total = rounded(datatype, total + block_dot(datatype, a, b, from, count));
    return (float)total;
}

void ref_grad_slot_weights(const struct ref *ref, int me, const struct data *grad,
                           const struct data *send, float *grad_slot_weights)
{
    const struct ref_rank *at = &ref->rank[me];
    void *a = malloc(data_row_bytes(grad) + 8), *b = malloc(data_row_bytes(send) + 8);

    for (int64_t row = 0; row < written_rows(ref, at); row++) {
        if (is_left_alone(ref, at, row))
            continue;
        grad_slot_weights[row] = 0;
        if (at->row_ranks[row] < 0)
            continue;
        data_row(grad, at->row_ranks[row], at->row_tokens[row], a);
        data_row(send, me, row, b);
        grad_slot_weights[row] = row_dot(grad->datatype, a, b, grad->count);
    }
    free(a);
    free(b);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* info_ways.c - prints how operations would go on GPUs that store into each other, without one. */
#include "info_ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/param.h"
#include "coll/tuning.h"
#include "kernels/element.h"
#include "kernels/layout.h"

enum asked {
    RANKS,
    TOKENS,
    HIDDEN,
    TOP_K,
    EXPERTS,
    ELEMENT_BYTES,
    SMS,
    SHARERS,
    RANK_MAJOR,
    ASKED
};

/* What a shape may have, its least and greatest value, and its default; 0 tokens = a list of
 * them. */
static const struct {
    const char *name;
    long least, most, usual;
} asked[] = {
    [RANKS] = {"ranks", 1, 1 << 16, 8},       [TOKENS] = {"tokens", 0, 1 << 30, 0},
    [HIDDEN] = {"hidden", 0, 1 << 30, 7168},  [TOP_K] = {"top-k", 1, EPX_MAX_TOP_K, 8},
    [EXPERTS] = {"experts", 1, 1 << 24, 256}, [ELEMENT_BYTES] = {"element-bytes", 1, 8, 2},
    [SMS] = {"sms", 1, 1 << 16, 132},         [SHARERS] = {"sharers", 1, 1 << 10, 1},
    [RANK_MAJOR] = {"rank-major", 0, 1, 0},
};

static int complain(const char *what, const char *text)
{
    fprintf(stderr, "epx_info: %s in --ways: %s; want a list of", what, text);
    for (int i = 0; i < ASKED; i++)
        fprintf(stderr, "%s %s=%ld to %ld", i ? "," : "", asked[i].name, asked[i].least,
                asked[i].most);
    fputc('\n', stderr);
    return -1;
}

/* Reads NAME=NUMBER. */
static int read_one(const char *text, long values[ASKED])
{
    for (int i = 0; i < ASKED; i++) {
        const size_t length = strlen(asked[i].name);
        char *end;

        if (strncmp(text, asked[i].name, length) != 0 || text[length] != '=')
            continue;
        values[i] = strtol(text + length + 1, &end, 10);
        if (end == text + length + 1 || *end || values[i] < asked[i].least ||
            values[i] > asked[i].most)
            return complain("a wrong number", text);
        return 0;
    }
    return complain("an unknown name", text);
}

static int read_shape(const char *shape, long values[ASKED])
{
    char list[256], *rest = list;

    for (int i = 0; i < ASKED; i++)
        values[i] = asked[i].usual;
    if (!shape)
        return 0;
    if (snprintf(list, sizeof(list), "%s", shape) >= (int)sizeof(list))
        return complain("too long a list", shape);
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
        if (read_one(one, values) < 0)
            return -1;
    return 0;
}

/* The GPU of a rank that shares it with others, as the hints would have it. */
static struct epx_gpu gpu_of(const long values[ASKED], const struct epx_params *params)
{
    struct epx_gpu gpu = {.sms = (int32_t)values[SMS], .max_sms = (int32_t)params->max_sms};

    epx_gpu_share(&gpu, (int32_t)values[SHARERS], epx_waiting_sms(params));
    epx_gpu_set_sizes(&gpu, values[RANKS], params->window_bytes, 0);
    return gpu;
}

static int64_t row_bytes_of(enum epx_verb verb, const long values[ASKED],
                            const struct epx_params *params)
{
    const int64_t element = values[ELEMENT_BYTES];

    if (epx_verb_adds(verb) && params->combine_partials != EPX_PARTIALS_DATATYPE && element < 4)
        return values[HIDDEN] * 4;
    return values[HIDDEN] * element;
}

/* A route that is made for rows of this length has a stage for all of them. */
#define LARGE_STAGE ((int64_t)1 << 50)

static struct epx_shape shape_of(enum epx_verb verb, const long values[ASKED],
                                 const struct epx_params *params)
{
    const int64_t row_bytes = row_bytes_of(verb, values, params);
    const int32_t ranks = (int32_t)values[RANKS], top_k = (int32_t)values[TOP_K];
    struct epx_shape shape = {.ranks = ranks,
                              .most_rows = top_k < ranks ? top_k : ranks,
                              .fields = verb == EPX_VERB_ROUTE_TOKENS ? 0 : 1,
                              .stays = (int32_t)values[RANK_MAJOR],
                              .datatype = values[ELEMENT_BYTES] == 8   ? EPX_FLOAT64
                                          : values[ELEMENT_BYTES] == 4 ? EPX_FLOAT32
                                                                       : EPX_BFLOAT16,
                              .call_bytes = values[HIDDEN] * values[ELEMENT_BYTES],
                              .row_bytes = row_bytes,
                              .bank_row_bytes = epx_bytes_in_bank(row_bytes),
                              .stage_bytes = LARGE_STAGE};

    epx_shape_set_verb(&shape, verb);
    shape.route.num_experts = (int32_t)values[EXPERTS];
    shape.route.num_local = (int32_t)((values[EXPERTS] + ranks - 1) / ranks);
    shape.route.top_k = top_k;
    shape.route.max_tokens = (int32_t)values[TOKENS];
    shape.route.rank_major = shape.stays;
    return shape;
}

static void print_way(enum epx_verb verb, const struct epx_gpu *gpu, const struct epx_shape *shape)
{
    const struct epx_way way = epx_way_of_shape(gpu, shape);
    const struct epx_banks *banks = &way.banks;
    const struct epx_movers *movers = &way.movers;

    printf("%-21s %7d ", epx_verb_name(verb), shape->route.max_tokens);
    if (shape->flow == EPX_FLOW_NONE)
        printf("%s\n", way.routes_small ? "ids" : "records");
    else if (shape->routes && !banks->senders)
        printf("a routing, then a dispatch\n");
    else if (way.wire == EPX_WIRE_STAGES)
        printf("%-8s 1       -         -     -      -       -    -    -      - %6lld\n",
               epx_wire_name(way.wire), (long long)way.rounds.num);
    else if (banks->senders)
        printf("%-8s 1 %7d %9d     - %6d %7lld\n", epx_wire_name(way.wire), banks->senders,
               banks->receivers, banks->slices.num, (long long)banks->slices.bytes);
    else
        printf("%-8s 2 %7d %9d %5d %6d %7lld %4d %4d %6d %6lld\n", epx_wire_name(way.wire),
               movers->senders, movers->receivers, movers->warps, movers->slices.num,
               (long long)movers->slices.bytes, movers->run, 1 << movers->rows_log2, movers->chunks,
               (long long)way.rounds.num);
}

static void print_ways(const long values[ASKED], const struct epx_params *params)
{
    static const enum epx_verb verbs[] = {EPX_VERB_ROUTE_TOKENS,      EPX_VERB_ROUTE_DISPATCH,
                                          EPX_VERB_DISPATCH,          EPX_VERB_COMBINE,
                                          EPX_VERB_DISPATCH_BACKWARD, EPX_VERB_COMBINE_BACKWARD};
    const struct epx_gpu gpu = gpu_of(values, params);

    for (size_t v = 0; v < sizeof(verbs) / sizeof(verbs[0]); v++) {
        const struct epx_shape shape = shape_of(verbs[v], values, params);

        print_way(verbs[v], &gpu, &shape);
    }
}

int info_print_ways(const char *shape)
{
    static const long usual[] = {1, 16, 128, 1024, 8192};
    struct epx_params params;
    long values[ASKED];

    if (read_shape(shape, values) < 0 || epx_params_read(NULL, &params) != EPX_SUCCESS)
        return -1;
    for (int i = 0; i < ASKED; i++)
        if (i != TOKENS)
            printf("%s%s=%ld", i ? " " : "", asked[i].name, values[i]);
    printf("\n%-21s %7s %-8s %s\n", "operation", "tokens", "wire",
           "launches senders receivers warps slices  bytes  run rows chunks rounds");
    if (values[TOKENS]) {
        print_ways(values, &params);
        return 0;
    }
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
        values[TOKENS] = usual[i];
        print_ways(values, &params);
    }
    return 0;
}

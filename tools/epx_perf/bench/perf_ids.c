/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_ids.c - expert ids: drawn without replacement with weights, dealt out in turn, or read
 * from a file.
 *
 * To draw K of E with weights, give each expert an exponential variable divided by its weight
 * and take the K smallest (Efraimidis and Spirakis, Information Processing Letters 97, 2006).
 */
#include "epx_perf/bench/perf_ids.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "epx_perf/bench/perf_options.h"
#include "epx_perf/space/perf_alloc.h"
#include "ranks/ranks.h"

static char complaint[512];

static int complain(const char *what, const char *which)
{
    snprintf(complaint, sizeof(complaint), "%s: %s", which, what);
    return -1;
}

/* The generator splitmix64 of Steele, Lea and Flood. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static double next_exponential(uint64_t *state)
{
    return -log((double)((next_random(state) >> 11) + 1) * 0x1p-53);
}

/* Inserts an expert among the at most top_k smallest keys, smallest first. */
static int insert(double key, int64_t expert, int have, int top_k, double *keys, int64_t *ids)
{
    int at;

    if (have == top_k && key >= keys[top_k - 1])
        return have;
    at = have < top_k ? have : top_k - 1;
    for (; at && keys[at - 1] > key; at--) {
        keys[at] = keys[at - 1];
        ids[at] = ids[at - 1];
    }
    keys[at] = key;
    ids[at] = expert;
    return have < top_k ? have + 1 : have;
}

/* Expert e is drawn with weight 1 / (e + 1)^exponent; choices past E are -1. The sets of ids are
 * drawn one after the other. */
static void draw(const struct perf_options *options, const struct perf_load *load, double exponent,
                 int64_t *ids)
{
    uint64_t state = (uint64_t)options->seed * 1000003 + (uint64_t)load->rank;
    double *rarity = perf_alloc(load->experts, sizeof(*rarity)), keys[64];
    int64_t num = (int64_t)load->num_sets * load->tokens;

    for (int e = 0; e < load->experts; e++)
        rarity[e] = pow(e + 1, exponent);
    for (int64_t t = 0; t < num; t++, ids += load->top_k) {
        int have = 0;

        for (int e = 0; e < load->experts; e++)
            have = insert(next_exponential(&state) * rarity[e], e, have, load->top_k, keys, ids);
        for (; have < load->top_k; have++)
            ids[have] = -1;
    }
    free(rarity);
}

/* Pairs go to the ranks in turn, and on each rank to its experts in turn. */
static int deal_out(const struct perf_load *load, int64_t *ids)
{
    if (load->experts < load->size)
        return complain("some rank has no expert", "even");
    for (int64_t i = 0; i < load->pairs; i++) {
        int rank = (int)(i % load->size), first = perf_first_expert(load, rank);

        ids[i] = first + i / load->size % (perf_first_expert(load, rank + 1) - first);
    }
    return 0;
}

static int64_t *grow(int64_t *ids, int64_t have, int64_t *room)
{
    int64_t *more;

    if (have < *room)
        return ids;
    *room = *room ? 2 * *room : 4096;
    more = realloc(ids, (size_t)*room * sizeof(*ids));
    if (!more)
        free(ids);
    return more;
}

/* Returns all numbers of a text file; NULL if it holds anything but numbers. */
static int64_t *read_numbers(FILE *file, int64_t *num)
{
    int64_t *ids = NULL, room = 0;
    long long id;
    int got;

    *num = 0;
    while ((got = fscanf(file, "%lld", &id)) == 1) {
        ids = grow(ids, *num, &room);
        if (!ids)
            return NULL;
        ids[(*num)++] = id;
    }
    if (got != EOF || ferror(file)) {
        free(ids);
        return NULL;
    }
    return ids;
}

/* Rank r takes rows r * tokens to (r + 1) * tokens, from the top again where the file ends. */
static int take_rows(const struct perf_load *load, const char *path, const int64_t *from,
                     int64_t num, int64_t *ids)
{
    int64_t rows = num / load->top_k, first = (int64_t)load->rank * load->tokens;

    if (rows == 0 || num % load->top_k)
        return complain("not a multiple of top-k ids", path);
    for (int64_t i = 0; i < num; i++)
        if (from[i] < -1 || from[i] >= load->experts)
            return complain("an id is not from -1 to experts - 1", path);
    for (int64_t t = 0; t < load->tokens; t++)
        memcpy(ids + t * load->top_k, from + (first + t) % rows * load->top_k,
               (size_t)load->top_k * sizeof(*ids));
    return 0;
}

static int read_file(const struct perf_load *load, const char *path, int64_t *ids)
{
    FILE *file = fopen(path, "r");
    int64_t num, *numbers;
    int rc;

    if (!file)
        return complain(strerror(errno), path);
    numbers = read_numbers(file, &num);
    fclose(file);
    if (!numbers)
        return complain("not a file of numbers", path);
    rc = take_rows(load, path, numbers, num, ids);
    free(numbers);
    return rc;
}

static int make_ids(const struct perf_options *options, const struct perf_load *load, int64_t *ids)
{
    const char *skew = options->skew;
    double exponent = 0;
    char *end;

    if (strncmp(skew, "file:", 5) == 0)
        return read_file(load, skew + 5, ids);
    if (strcmp(skew, "even") == 0)
        return deal_out(load, ids);
    if (strncmp(skew, "zipf:", 5) == 0) {
        exponent = strtod(skew + 5, &end);
        if (end == skew + 5 || *end || !(exponent >= 0 && exponent <= 100))
            return complain("not zipf:EXPONENT with an exponent from 0 to 100", skew);
    } else if (strcmp(skew, "uniform") != 0) {
        return complain("not uniform, zipf:EXPONENT, even or file:PATH", skew);
    }
    draw(options, load, exponent, ids);
    return 0;
}

/* A file may be there for some ranks alone: the first rank that fails says why. */
int perf_ids_make(const struct perf_options *options, struct perf_load *load)
{
    int failed = make_ids(options, load, load->all_ids);
    int64_t first = ranks_least(failed ? load->rank : load->size);

    if (first == load->rank)
        fprintf(stderr, "epx_perf: rank %d: %s\n", load->rank, complaint);
    return first < load->size ? -1 : 0;
}

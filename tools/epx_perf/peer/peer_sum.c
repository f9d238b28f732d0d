/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_sum.c - weighted sums of rows, block by block: a block has a fixed length so that compilers
 * vectorize the loops over it.
 */
#include "epx_perf/peer/peer_sum.h"

#include <string.h>

#include "epx_perf/bench/perf_number.h"

enum { BLOCK = 256 };

/* The rows that are added up, each times its weight, from the byte at offset on. */
struct terms {
    const char *const *rows;
    const float *weights;
    int num;
    int64_t offset;
};

static void load_float(EPX_Datatype datatype, const char *from, int n, float *to)
{
    const uint16_t *halves = (const uint16_t *)(const void *)from;
    uint32_t bits;

    if (datatype == EPX_FLOAT32) {
        memcpy(to, from, (size_t)n * 4);
        return;
    }
    for (int i = 0; i < n; i++) {
        bits = (uint32_t)halves[i] << 16;
        memcpy(to + i, &bits, 4);
    }
}

/* Rounds to nearest even; there are no NaNs here. */
static void store_float(EPX_Datatype datatype, const float *from, int n, char *to)
{
    uint16_t *halves = (uint16_t *)(void *)to;
    uint32_t bits;

    if (datatype == EPX_FLOAT32) {
        memcpy(to, from, (size_t)n * 4);
        return;
    }
    for (int i = 0; i < n; i++) {
        memcpy(&bits, from + i, 4);
        halves[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static void add_float(float *restrict sum, const float *restrict term, float weight)
{
    for (int i = 0; i < BLOCK; i++)
        sum[i] += weight * term[i];
}

static void add_double(double *restrict sum, const double *restrict term, double weight)
{
    for (int i = 0; i < BLOCK; i++)
        sum[i] += weight * term[i];
}

static void sum_float_block(EPX_Datatype datatype, const struct terms *terms, int n, char *to)
{
    float sum[BLOCK] = {0}, term[BLOCK] = {0};

    for (int k = 0; k < terms->num; k++) {
        const char *from = terms->rows[k] + terms->offset;

        if (datatype == EPX_FLOAT32 && n == BLOCK) {
            add_float(sum, (const float *)(const void *)from, terms->weights[k]);
            continue;
        }
        load_float(datatype, from, n, term);
        add_float(sum, term, terms->weights[k]);
    }
    store_float(datatype, sum, n, to + terms->offset);
}

static void sum_double_block(const struct terms *terms, int n, char *to)
{
    double sum[BLOCK] = {0}, term[BLOCK] = {0};

    for (int k = 0; k < terms->num; k++) {
        memcpy(term, terms->rows[k] + terms->offset, (size_t)n * 8);
        add_double(sum, term, terms->weights[k]);
    }
    memcpy(to + terms->offset, sum, (size_t)n * 8);
}

void perf_peer_sum(EPX_Datatype datatype, const char *const rows[], const float weights[], int num,
                   int count, char *to)
{
    struct terms terms = {rows, weights, num, 0};
    int size = perf_datatype_bytes(datatype);

    for (int i = 0; i < count; i += BLOCK) {
        int n = count - i < BLOCK ? count - i : BLOCK;

        terms.offset = (int64_t)i * size;
        if (datatype == EPX_FLOAT64)
            sum_double_block(&terms, n, to);
        else
            sum_float_block(datatype, &terms, n, to);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* data.c - test data as a pure function of (seed, rank, row). */
#include "support/data.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x9fb21c651e98df25u;
    x ^= x >> 28;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

uint64_t data_hash(uint64_t seed, uint64_t a, uint64_t b)
{
    return mix(mix(mix(seed + 0x632be59bd9b4e019u) + a) + 0x2545f4914f6cdd1du * (b + 1));
}

int data_below(uint64_t seed, uint64_t a, uint64_t b, int below)
{
    return (int)(data_hash(seed, a, b) % (uint64_t)below);
}

size_t data_size(EPX_Datatype datatype)
{
    switch (datatype) {
    case EPX_FLOAT16:
    case EPX_BFLOAT16: return 2;
    case EPX_FLOAT32: return 4;
    case EPX_FLOAT64: return 8;
    default: return 1;
    }
}

size_t data_row_bytes(const struct data *data)
{
    return (size_t)data->count * data_size(data->datatype);
}

static const uint64_t sign_bit = (uint64_t)1 << 63;

/* Bits of a number with the given widths: usually within a factor 64 of one. */
static uint64_t number_bits(uint64_t h, int exponent_bits, int mantissa_bits)
{
    uint64_t bias = ((uint64_t)1 << (exponent_bits - 1)) - 1;
    uint64_t sign = (h >> 63) << (exponent_bits + mantissa_bits);
    uint64_t mantissa = (h >> 8) & (((uint64_t)1 << mantissa_bits) - 1);

    if (h % 16 == 0)
        return sign;
    if (h % 16 == 1)
        return sign | mantissa;
    return sign | (bias - 6 + (h >> 4 & 15) % 13) << mantissa_bits | mantissa;
}

static void random_bytes(uint64_t seed, size_t bytes, unsigned char *out)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t h = mix(seed + i);

        memcpy(out + i, &h, bytes - i < 8 ? bytes - i : 8);
    }
}

/* The hash that element i of a row is made of. */
static uint64_t element_hash(const struct data *data, uint64_t seed, int i)
{
    return data->kind == DATA_ZEROS ? seed & sign_bit : mix(seed + (uint64_t)i);
}

/* A loop for each type: most of the time of many tests is spent here. */
static void halves(const struct data *data, uint64_t seed, int exponent_bits, unsigned char *out)
{
    for (int i = 0; i < data->count; i++) {
        uint64_t h = element_hash(data, seed, i);
        uint16_t bits = (uint16_t)number_bits(h, exponent_bits, 15 - exponent_bits);

        memcpy(out + 2 * (size_t)i, &bits, 2);
    }
}

static void singles(const struct data *data, uint64_t seed, unsigned char *out)
{
    for (int i = 0; i < data->count; i++) {
        uint32_t bits = (uint32_t)number_bits(element_hash(data, seed, i), 8, 23);

        memcpy(out + 4 * (size_t)i, &bits, 4);
    }
}

static void doubles(const struct data *data, uint64_t seed, unsigned char *out)
{
    for (int i = 0; i < data->count; i++) {
        uint64_t bits = number_bits(element_hash(data, seed, i), 11, 52);

        memcpy(out + 8 * (size_t)i, &bits, 8);
    }
}

void data_row(const struct data *data, int rank, int64_t row, void *out)
{
    uint64_t seed = data_hash(data->seed, (uint64_t)rank, (uint64_t)row);

    if (data->kind == DATA_BYTES || data_size(data->datatype) == 1)
        random_bytes(seed, data_row_bytes(data), out);
    else if (data->datatype == EPX_FLOAT64)
        doubles(data, seed, out);
    else if (data->datatype == EPX_FLOAT32)
        singles(data, seed, out);
    else
        halves(data, seed, data->datatype == EPX_FLOAT16 ? 5 : 8, out);
}

float data_weight(uint64_t seed, int rank, int64_t index)
{
    uint64_t h = data_hash(seed, (uint64_t)rank, (uint64_t)index);

    if (h % 16 == 0)
        return h >> 63 ? -0.0f : 0.0f;
    return (float)(h >> 40) / 4194304.0f - 2.0f;
}

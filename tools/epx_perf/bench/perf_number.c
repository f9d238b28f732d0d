/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_number.c - the numbers of rows and weights, and their encoding in each datatype. */
#include "epx_perf/bench/perf_number.h"

#include <math.h>
#include <string.h>

int perf_datatype_bytes(EPX_Datatype datatype)
{
    switch (datatype) {
    case EPX_FLOAT16:
    case EPX_BFLOAT16: return 2;
    case EPX_FLOAT32: return 4;
    case EPX_FLOAT64: return 8;
    default: return 1;
    }
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t perf_row_seed(int source, int64_t index)
{
    return mix((uint64_t)source << 40 ^ (uint64_t)index);
}

uint64_t perf_bits(uint64_t seed, uint64_t i)
{
    return mix(seed + i);
}

int perf_element(uint64_t seed, int c)
{
    return (int)(perf_bits(seed, (uint64_t)c) % 3) - 1;
}

float perf_weight(int source, int64_t pair)
{
    return perf_row_seed(source, pair) & 1 ? 1.0f : 0.5f;
}

double perf_factor(int64_t expert)
{
    return expert % 2 ? 2 : 1;
}

static uint16_t float16_of(double value)
{
    int exponent;
    double fraction = frexp(fabs(value), &exponent);
    unsigned sign = value < 0 ? 0x8000 : 0;

    if (value == 0)
        return 0;
    return (uint16_t)(sign | (unsigned)(exponent + 14) << 10 | (unsigned)(fraction * 2048 - 1024));
}

static double of_float16(uint16_t half)
{
    double value = ldexp(1024 + (half & 1023), (half >> 10 & 31) - 25);

    return half << 1 & 0xffff ? half & 0x8000 ? -value : value : 0;
}

void perf_encode(EPX_Datatype datatype, double value, char *to)
{
    float single = (float)value;
    uint32_t bits;
    uint16_t half;

    memcpy(&bits, &single, 4);
    half = datatype == EPX_FLOAT16 ? float16_of(value) : (uint16_t)(bits >> 16);
    if (datatype == EPX_FLOAT64)
        memcpy(to, &value, 8);
    else if (datatype == EPX_FLOAT32)
        memcpy(to, &single, 4);
    else
        memcpy(to, &half, 2);
}

double perf_decode(EPX_Datatype datatype, const char *from)
{
    double value;
    float single;
    uint32_t bits;
    uint16_t half;

    if (datatype == EPX_FLOAT64) {
        memcpy(&value, from, 8);
        return value;
    }
    if (datatype == EPX_FLOAT32) {
        memcpy(&single, from, 4);
        return single;
    }
    memcpy(&half, from, 2);
    if (datatype == EPX_FLOAT16)
        return of_float16(half);
    bits = (uint32_t)half << 16;
    memcpy(&single, &bits, 4);
    return single;
}

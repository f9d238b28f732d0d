/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * element.h - elements of each datatype: size, conversion to and from the type that sums are
 * kept in, and the product and sum whose rounding is promised. Conversions round to nearest
 * even (IEEE 754-2019, 4.3.1).
 */
#ifndef EPX_KERNELS_ELEMENT_H
#define EPX_KERNELS_ELEMENT_H

#include <string.h>

#include "epx.h"
#include "kernels/layout.h"

/* Bytes of an element; 0 if there is no such datatype. */
EPX_HD int epx_datatype_bytes(EPX_Datatype datatype)
{
    switch (datatype) {
    case EPX_BYTE:
    case EPX_FLOAT8_E4M3:
    case EPX_FLOAT8_E5M2: return 1;
    case EPX_FLOAT16:
    case EPX_BFLOAT16: return 2;
    case EPX_FLOAT32: return 4;
    case EPX_FLOAT64: return 8;
    default: return 0;
    }
}

/* Whether the verbs that add take the datatype. */
EPX_HD int epx_datatype_adds(EPX_Datatype datatype)
{
    return datatype >= EPX_FLOAT16 && datatype <= EPX_FLOAT64;
}

EPX_HD uint32_t epx_float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

EPX_HD float epx_float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

EPX_HD float epx_float_of_bfloat16(uint16_t half)
{
    return epx_float_of_bits((uint32_t)half << 16);
}

#ifdef __CUDA_ARCH__
/* One instruction each; a NaN stays one, but not with its payload. */
EPX_HD float epx_float_of_float16(uint16_t half)
{
    float value;

    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

EPX_HD uint16_t epx_float16_of_float(float value)
{
    uint16_t half;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}
#else
/* Subnormal halves are exact multiples of 2^-24; infinity and NaN keep their bits. */
EPX_HD float epx_float_of_float16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    uint32_t normal = (magnitude << 13) + (112u << 23);
    uint32_t special = (magnitude << 13) | 0x7f800000u;
    uint32_t tiny = epx_float_bits((float)magnitude * 5.9604644775390625e-8f);
    uint32_t bits = magnitude < 0x0400u ? tiny : magnitude < 0x7c00u ? normal : special;

    return epx_float_of_bits(sign | bits);
}

/* Adding 0.5 to a float below 2^-14 leaves its multiple of 2^-24, rounded, in the low bits. */
EPX_HD uint16_t epx_float16_of_float(float value)
{
    uint32_t bits = epx_float_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
    uint32_t tiny =
        epx_float_bits(epx_float_of_bits(magnitude < 0x38800000u ? magnitude : 0) + 0.5f) -
        0x3f000000u;
    uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    uint32_t half = magnitude < 0x38800000u   ? tiny
                    : magnitude < 0x477ff000u ? normal
                    : magnitude > 0x7f800000u ? nan
                                              : 0x7c00u;

    return (uint16_t)(sign | half);
}
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
EPX_HD uint16_t epx_bfloat16_of_float(float value)
{
    uint16_t half;

    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}

/* Two with one instruction, the first in the low half. A sum that is rounded once has the bits of
 * one in float32 that is rounded again: that has 24 bits, no fewer than 2 * 11 + 2 (S. A. Figueroa,
 * When is double rounding innocuous?, SIGNUM Newsletter 30(3), 1995). */
#define EPX_TWO_HALVES 1
EPX_HD uint32_t epx_add_two_bfloat16(uint32_t a, uint32_t b)
{
    const uint32_t ones = 0x3f803f80u;
    uint32_t two;

    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(two) : "r"(a), "r"(ones), "r"(b));
    return two;
}

EPX_HD uint32_t epx_add_two_float16(uint32_t a, uint32_t b)
{
    uint32_t two;

    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(two) : "r"(a), "r"(b));
    return two;
}

EPX_HD uint32_t epx_two_bfloat16(float first, float second)
{
    uint32_t two;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
    return two;
}

EPX_HD uint32_t epx_two_float16(float first, float second)
{
    uint32_t two;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(second), "f"(first));
    return two;
}
#else
#define EPX_TWO_HALVES 0
EPX_HD uint16_t epx_bfloat16_of_float(float value)
{
    uint32_t bits = epx_float_bits(value);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet_nan = (bits >> 16) | 0x40u;

    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}
#endif

/* Product and sum, each rounded; never contracted (the library is built without contraction). */
#ifdef __CUDA_ARCH__
EPX_HD float epx_mul_float(float a, float b)
{
    return __fmul_rn(a, b);
}
EPX_HD float epx_add_float(float a, float b)
{
    return __fadd_rn(a, b);
}
EPX_HD double epx_mul_double(double a, double b)
{
    return __dmul_rn(a, b);
}
EPX_HD double epx_add_double(double a, double b)
{
    return __dadd_rn(a, b);
}
#else
EPX_HD float epx_mul_float(float a, float b)
{
    return a * b;
}
EPX_HD float epx_add_float(float a, float b)
{
    return a + b;
}
EPX_HD double epx_mul_double(double a, double b)
{
    return a * b;
}
EPX_HD double epx_add_double(double a, double b)
{
    return a + b;
}
#endif

#endif

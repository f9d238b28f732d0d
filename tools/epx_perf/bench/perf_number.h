/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_number.h - the numbers that rows and weights are made of. A number is a function of
 * (rank, index), so that any rank can compute what it should have received. Elements are small and
 * weights are powers of two, so that sums are exact in every datatype and in every order.
 */
#ifndef EPX_PERF_NUMBER_H
#define EPX_PERF_NUMBER_H

#include <epx.h>

int perf_datatype_bytes(EPX_Datatype datatype);

/* The seed of the row that has this index on rank `source`. */
uint64_t perf_row_seed(int source, int64_t index);
/* The random bits that follow from a seed and an index. */
uint64_t perf_bits(uint64_t seed, uint64_t i);
/* Element c of a row of numbers: -1, 0 or 1. */
int perf_element(uint64_t seed, int c);
float perf_weight(int source, int64_t pair);
/* The factor by which an expert multiplies rows of numbers: experts do nothing else here. */
double perf_factor(int64_t expert);

/* Writes a number as an element of a floating-point datatype: exact for the numbers here. */
void perf_encode(EPX_Datatype datatype, double value, char *to);
double perf_decode(EPX_Datatype datatype, const char *from);

#endif

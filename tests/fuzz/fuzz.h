/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz.h - what a fuzzer calls: libFuzzer's names. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#endif

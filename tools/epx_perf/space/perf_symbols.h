/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_symbols.h - functions of a library that is opened when a run needs it. */
#ifndef EPX_PERF_SYMBOLS_H
#define EPX_PERF_SYMBOLS_H

struct perf_symbol {
    const char *name;
    void *entry; /* where the pointer to the function goes */
};

/* Finds symbols, which end with a NULL name, in what dlopen gave: NULL, or why not. */
const char *perf_symbols_find(void *library, const struct perf_symbol *symbols);

#endif

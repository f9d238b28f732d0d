/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_symbols.c - functions of a library that is opened when a run needs it. */
#include "epx_perf/space/perf_symbols.h"

#include <dlfcn.h>
#include <string.h>

const char *perf_symbols_find(void *library, const struct perf_symbol *symbols)
{
    if (!library)
        return dlerror();
    for (int i = 0; symbols[i].name; i++) {
        void *symbol = dlsym(library, symbols[i].name);

        if (!symbol)
            return dlerror();
        memcpy(symbols[i].entry, &symbol, sizeof(symbol));
    }
    return NULL;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * allocation.h - counts what the library asks of the C library and the system. The program is
 * linked with -Wl,--wrap for each function of allocation.c, so it sees the allocations of
 * everything linked into it statically, the tests' own among them, and not those of MPI.
 */
#ifndef ALLOCATION_H
#define ALLOCATION_H

#include <stdint.h>

struct allocation {
    int64_t calls;        /* allocations ever */
    int64_t live_blocks;  /* not yet freed */
    int64_t live_bytes;   /* as asked for */
    int64_t mapped_bytes; /* mapped by mmap, not yet unmapped */
    int64_t shared_bytes; /* reserved by this rank in files by posix_fallocate, ever */
};

struct allocation allocation_now(void);
/* What was allocated since. */
struct allocation allocation_since(const struct allocation *before);
/* Whether nothing was written behind a live block, as far as it shows. Blocks are also checked when
 * they are freed; a fault there aborts the program. */
int allocation_is_intact(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* nearest.h - which of some words was meant by one that is none of them. */
#ifndef EPX_BASE_NEAREST_H
#define EPX_BASE_NEAREST_H

#include <stddef.h>

enum { EPX_MEANT_MAX = 64 };

/* The word that the first `length` characters of text, in capitals or not, are like; NULL if they
 * are like none. words ends with NULL. */
const char *epx_find_meant(const char *text, size_t length, const char *const *words);

/* Writes "; did you mean WORD?" of the word that epx_find_meant finds, or nothing. */
void epx_write_meant(const char *text, size_t length, const char *const *words,
                     char meant[EPX_MEANT_MAX]);

#endif

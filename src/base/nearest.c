/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nearest.c - the word meant is the one that takes fewest changes: a letter more, less or another,
 * or two letters the other way round. A word that begins with the text, or the text with it, is
 * near, too.
 */
#include "base/nearest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 32, SHORTEST_BEGIN = 3, TOO_FAR = 3 * LONGEST };

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Changes from a to b, after R. A. Wagner and M. J. Fischer, J. ACM 21 (1974), and with two
 * neighbours exchanged. */
static int changes(const char *a, int a_length, const char *b, int b_length)
{
    int table[LONGEST + 1][LONGEST + 1];

    for (int i = 0; i <= a_length; i++)
        for (int j = 0; j <= b_length; j++) {
            if (i == 0 || j == 0) {
                table[i][j] = i + j;
                continue;
            }
            table[i][j] = least(least(table[i - 1][j], table[i][j - 1]) + 1,
                                table[i - 1][j - 1] + !same(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
                table[i][j] = least(table[i][j], table[i - 2][j - 2] + 1);
        }
    return table[a_length][b_length];
}

static int begins_alike(const char *a, const char *b, int length)
{
    for (int i = 0; i < length; i++)
        if (!same(a[i], b[i]))
            return 0;
    return 1;
}

/* How far a word is, 0 at best; TOO_FAR if it is not meant. */
static int distance(const char *text, size_t text_length, const char *word)
{
    int length = (int)text_length, word_length = (int)strlen(word), shorter, num;

    if (text_length > LONGEST || word_length > LONGEST)
        return TOO_FAR;
    shorter = least(length, word_length);
    num = changes(text, length, word, word_length);
    if (num <= 1 + shorter / 4 && num < shorter)
        return num;
    return shorter >= SHORTEST_BEGIN && begins_alike(text, word, shorter) ? LONGEST + num : TOO_FAR;
}

const char *epx_find_meant(const char *text, size_t length, const char *const *words)
{
    const char *nearest = NULL;
    int best = TOO_FAR;

    for (; *words; words++) {
        int far = distance(text, length, *words);

        if (far < best) {
            best = far;
            nearest = *words;
        }
    }
    return nearest;
}

void epx_write_meant(const char *text, size_t length, const char *const *words,
                     char meant[EPX_MEANT_MAX])
{
    const char *word = epx_find_meant(text, length, words);

    meant[0] = '\0';
    if (word)
        snprintf(meant, EPX_MEANT_MAX, "; did you mean %s?", word);
}

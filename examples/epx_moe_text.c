/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_moe_text.c - tokens of a text: words and punctuation, embedded by hashed trigrams. */
#include "epx_moe.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads to the end, so that pipes work too. Answers an errno value. */
static int read_stream(FILE *stream, struct moe_text *text)
{
    int64_t room = 0;
    size_t got;

    do {
        if (text->num_bytes == room) {
            unsigned char *bytes = realloc(text->bytes, (size_t)(room = 2 * room + 65536));

            if (!bytes)
                return ENOMEM;
            text->bytes = bytes;
        }
        got = fread(text->bytes + text->num_bytes, 1, (size_t)(room - text->num_bytes), stream);
        text->num_bytes += (int64_t)got;
        if (text->num_bytes > INT_MAX)
            return EFBIG;
    } while (got);
    return ferror(stream) ? errno : 0;
}

static int read_file(const char *file, struct moe_text *text)
{
    FILE *stream = fopen(file, "rb");
    int error;

    if (!stream)
        return errno;
    error = read_stream(stream, text);
    fclose(stream);
    return error;
}

/* Bytes of a word: letters, digits, apostrophes, and all that is not ASCII. */
static int in_word(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '\'' || c >= 128;
}

static int is_space(unsigned char c)
{
    return c <= ' ' || c == 127;
}

/* Length of the token at a byte that is no space: a word, or one punctuation mark. */
static int64_t token_length(const struct moe_text *text, int64_t offset)
{
    int64_t end = offset;

    while (end < text->num_bytes && in_word(text->bytes[end]))
        end++;
    return end > offset ? end - offset : 1;
}

/* Fills tokens, if there are any to fill, and answers their number. */
static int64_t split(const struct moe_text *text, struct moe_token *tokens)
{
    int64_t n = 0, length;

    for (int64_t i = 0; i < text->num_bytes; i += length) {
        length = 1;
        if (is_space(text->bytes[i]))
            continue;
        length = token_length(text, i);
        if (tokens)
            tokens[n] = (struct moe_token){i, length};
        n++;
    }
    return n;
}

int moe_text_read(const char *file, struct moe_text *text)
{
    int rank;
    int64_t head[2] = {0, 0};

    *text = (struct moe_text){NULL, 0, 0, NULL};
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        head[0] = read_file(file, text);
        head[1] = text->num_bytes;
    }
    MPI_Bcast(head, 2, MPI_INT64_T, 0, MPI_COMM_WORLD);
    if (head[0]) {
        moe_text_free(text);
        return (int)head[0];
    }
    text->num_bytes = head[1];
    if (rank)
        text->bytes = moe_alloc(text->num_bytes, 1);
    MPI_Bcast(text->bytes, (int)text->num_bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    text->num_tokens = split(text, NULL);
    text->tokens = moe_alloc(text->num_tokens, sizeof(*text->tokens));
    split(text, text->tokens);
    return 0;
}

void moe_text_free(struct moe_text *text)
{
    free(text->bytes);
    free(text->tokens);
    *text = (struct moe_text){NULL, 0, 0, NULL};
}

static unsigned char lower(unsigned char c)
{
    return c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c;
}

/* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t hash_byte(uint64_t hash, unsigned char c)
{
    return (hash ^ lower(c)) * UINT64_C(0x100000001b3);
}

#define HASH_INIT UINT64_C(0xcbf29ce484222325)

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Tokens with the same 64-bit hash count as the same word. */
int64_t moe_text_vocabulary(const struct moe_text *text)
{
    uint64_t *hashes = moe_alloc(text->num_tokens, sizeof(*hashes));
    int64_t words = 0;

    for (int64_t i = 0; i < text->num_tokens; i++) {
        hashes[i] = HASH_INIT;
        for (int64_t j = 0; j < text->tokens[i].length; j++)
            hashes[i] = hash_byte(hashes[i], text->bytes[text->tokens[i].offset + j]);
    }
    qsort(hashes, (size_t)text->num_tokens, sizeof(*hashes), compare_hashes);
    for (int64_t i = 0; i < text->num_tokens; i++)
        words += i == 0 || hashes[i] != hashes[i - 1];
    free(hashes);
    return words;
}

/* The first token of a rank: ranks own equal parts of the bytes, and tokens that begin there. */
static int64_t first_token(const struct moe_text *text, int rank, int num_ranks)
{
    int64_t offset = text->num_bytes * rank / num_ranks, low = 0, high = text->num_tokens;

    while (low < high) {
        int64_t middle = (low + high) / 2;

        if (text->tokens[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t moe_text_batches(const struct moe_text *text, int num_ranks, int max_tokens)
{
    int64_t batches = 1;

    for (int r = 0; r < num_ranks; r++) {
        int64_t n = first_token(text, r + 1, num_ranks) - first_token(text, r, num_ranks);

        if ((n + max_tokens - 1) / max_tokens > batches)
            batches = (n + max_tokens - 1) / max_tokens;
    }
    return batches;
}

int moe_text_batch(const struct moe_text *text, int rank, int num_ranks, int max_tokens,
                   int64_t step, int64_t *first)
{
    int64_t batch = step % moe_text_batches(text, num_ranks, max_tokens);
    int64_t left;

    *first = first_token(text, rank, num_ranks) + batch * max_tokens;
    left = first_token(text, rank + 1, num_ranks) - *first;
    return left < 0 ? 0 : left < max_tokens ? (int)left : max_tokens;
}

/* The byte of a token at a place; the places before and behind it hold a mark. */
static unsigned char byte_at(const struct moe_text *text, const struct moe_token *token, int64_t i)
{
    return i < 0 || i >= token->length ? ' ' : text->bytes[token->offset + i];
}

/* Every trigram adds its scale to the element that its hash names, with the sign it names. */
static void add_trigrams(const struct moe_text *text, int64_t index, float scale, float *row,
                         int hidden)
{
    const struct moe_token *token = &text->tokens[index];

    for (int64_t i = 0; i < token->length; i++) {
        uint64_t hash = HASH_INIT;

        for (int j = -1; j <= 1; j++)
            hash = hash_byte(hash, byte_at(text, token, i + j));
        row[hash % (uint64_t)hidden] += hash >> 63 ? -scale : scale;
    }
}

/* Scales a row so that the mean square of its elements is 1; a zero row stays zero. */
static void normalize(float *row, int hidden)
{
    double sum = 0;

    for (int i = 0; i < hidden; i++)
        sum += (double)row[i] * row[i];
    for (int i = 0; sum > 0 && i < hidden; i++)
        row[i] = (float)(row[i] * sqrt(hidden / sum));
}

/* The row of a token: the token, and with half its weight the token before it, so that one word has
 * many rows. */
void moe_text_embed(const struct moe_text *text, int64_t token, float *row, int hidden)
{
    memset(row, 0, (size_t)hidden * sizeof(*row));
    add_trigrams(text, token, 1.0f, row, hidden);
    if (token > 0)
        add_trigrams(text, token - 1, 0.5f, row, hidden);
    normalize(row, hidden);
}

/* The target row of a token: the next token. */
void moe_text_target(const struct moe_text *text, int64_t token, float *row, int hidden)
{
    memset(row, 0, (size_t)hidden * sizeof(*row));
    if (token + 1 < text->num_tokens)
        add_trigrams(text, token + 1, 1.0f, row, hidden);
    normalize(row, hidden);
}

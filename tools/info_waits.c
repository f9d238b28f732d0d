/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * info_waits.c - who waited for whom, from a file of EPX_TRACE: each rank has written a line for
 * each of its communicators, as print_waits in src/core/health/trace.c does.
 */
#include "info_waits.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1 << 20 };

/* What one rank told of one communicator. */
struct row {
    int communicator, rank, size;
    uint64_t *ns, *operations; /* [size] */
    int printed;
};

struct rows {
    struct row *row;
    size_t num;
};

/* The number behind "name": in the line, -1 = there is none. */
static long find_number(const char *line, const char *name)
{
    const char *at = strstr(line, name);

    return at ? strtol(at + strlen(name), NULL, 10) : -1;
}

/* Reads the list behind "name":[ into numbers; returns how many it read. */
static int read_list(const char *line, const char *name, uint64_t *numbers, int most)
{
    const char *at = strstr(line, name);
    char *end;
    int num = 0;

    for (at = at ? at + strlen(name) : ""; num < most; at = end + 1) {
        numbers[num] = strtoull(at, &end, 10);
        if (end == at)
            break;
        num++;
        if (*end != ',')
            break;
    }
    return num;
}

static void free_row(struct row *row)
{
    free(row->ns);
    free(row->operations);
}

/* Returns 0 for a line that is not whole, too. */
static int read_row(const char *line, struct row *row)
{
    long size = find_number(line, "\"size\":"), rank = find_number(line, "\"rank\":");
    size_t ranks = (size_t)size;

    *row = (struct row){.communicator = (int)find_number(line, "\"communicator\":")};
    if (size < 1 || size > MOST_RANKS || rank < 0 || rank >= size)
        return 0;
    row->rank = (int)rank;
    row->size = (int)size;
    row->ns = calloc(ranks, sizeof(*row->ns));
    row->operations = calloc(ranks, sizeof(*row->operations));
    if (row->ns && row->operations && read_list(line, "\"ns\":[", row->ns, row->size) == size &&
        read_list(line, "\"operations\":[", row->operations, row->size) == size)
        return 1;
    free_row(row);
    return 0;
}

/* Returns 0 without memory for the row. */
static int add_row(struct rows *rows, const char *line)
{
    struct row *all, row;

    if (!strstr(line, "\"name\":\"EPX waits\"") || !read_row(line, &row))
        return 1;
    all = realloc(rows->row, (rows->num + 1) * sizeof(*all));
    if (!all) {
        free_row(&row);
        return 0;
    }
    rows->row = all;
    rows->row[rows->num++] = row;
    return 1;
}

static int read_rows(FILE *file, struct rows *rows)
{
    char *line = NULL;
    size_t room = 0;
    int all = 1;

    while (all && getline(&line, &room, file) >= 0)
        all = add_row(rows, line);
    free(line);
    return all && !ferror(file);
}

/* The next row of a communicator with this number and size, of rank r; NULL = it told nothing. */
static struct row *find_row(const struct rows *rows, const struct row *first, int r)
{
    for (size_t i = 0; i < rows->num; i++) {
        struct row *row = &rows->row[i];

        if (!row->printed && row->communicator == first->communicator && row->size == first->size &&
            row->rank == r)
            return row;
    }
    return NULL;
}

static void print_row(const struct row *row, uint64_t *sums)
{
    printf("%8d", row->rank);
    for (int r = 0; r < row->size; r++) {
        printf("  %10.1f %6llu", (double)row->ns[r] / 1e3, (unsigned long long)row->operations[r]);
        sums[r] += row->ns[r];
        sums[row->size + r] += row->operations[r];
    }
    putchar('\n');
}

static void print_sums(const uint64_t *sums, int size)
{
    printf("%8s", "all");
    for (int r = 0; r < size; r++)
        printf("  %10.1f %6llu", (double)sums[r] / 1e3, (unsigned long long)sums[size + r]);
    putchar('\n');
}

/* The matrix of one communicator: a line for each rank that waited. Returns 0 without memory. */
static int print_matrix(const struct rows *rows, const struct row *first)
{
    const int size = first->size;
    uint64_t *sums = calloc(2 * (size_t)size, sizeof(*sums));

    if (!sums)
        return 0;
    printf(
        "Communicator %d of %d ranks: microseconds that the rank of a line waited for each rank,\n"
        "and the operations in which that came last\n    rank",
        first->communicator, size);
    for (int r = 0; r < size; r++)
        printf("  %10s %6d", "for", r);
    putchar('\n');
    for (int r = 0; r < size; r++) {
        struct row *row = find_row(rows, first, r);

        if (!row)
            continue;
        print_row(row, sums);
        row->printed = 1;
    }
    print_sums(sums, size);
    free(sums);
    return 1;
}

static void free_rows(struct rows *rows)
{
    for (size_t i = 0; i < rows->num; i++)
        free_row(&rows->row[i]);
    free(rows->row);
}

static int print_matrices(const struct rows *rows)
{
    for (size_t i = 0; i < rows->num; i++)
        if (!rows->row[i].printed && !print_matrix(rows, &rows->row[i]))
            return 0;
    return 1;
}

int info_waits(const char *name)
{
    struct rows rows = {NULL, 0};
    FILE *file = fopen(name, "r");
    const char *wrong = NULL;

    if (!file || !read_rows(file, &rows))
        wrong = strerror(errno);
    else if (!rows.num)
        wrong = "there are no waits in it; EPX_TRACE=FILE writes them as communicators are freed";
    else if (!print_matrices(&rows))
        wrong = strerror(errno);
    if (file)
        fclose(file);
    free_rows(&rows);
    if (wrong)
        fprintf(stderr, "epx_info: %s: %s\n", name, wrong);
    return wrong != NULL;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* by_hand.c - tokens travel to experts and back by MPI alone. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 4, CHOICES = 2, HIDDEN = 2, EXPERTS = 8 };
enum { PAIRS = TOKENS * CHOICES };

struct row {
    int expert;
    float values[HIDDEN];
};

static int rank, size;

/* Which rank has the expert; size must divide EXPERTS. */
static int owner(int64_t expert)
{
    return (int)expert / (EXPERTS / size);
}

/* The first row of each rank in a buffer; answers the rows of all. */
static int place(const int *counts, int *displs)
{
    int rows = 0;

    for (int r = 0; r < size; r++) {
        displs[r] = rows;
        rows += counts[r];
    }
    return rows;
}

/* The experts' work, here: expert e multiplies by e. */
static void compute(struct row *rows, int num_rows)
{
    for (int i = 0; i < num_rows; i++)
        for (int h = 0; h < HIDDEN; h++)
            rows[i].values[h] *= (float)rows[i].expert;
}

static void exchange(const int64_t *ids, const float *weights,
                     float tokens[][HIDDEN], float sums[][HIDDEN])
{
    int counts[4][EXPERTS] = {{0}}, *out = counts[0], *in = counts[1];
    int *out_displs = counts[2], *in_displs = counts[3];
    int next[EXPERTS], slots[PAIRS], rows_in;
    struct row packed[PAIRS], *rows;
    MPI_Datatype type;

    MPI_Type_contiguous(sizeof(struct row), MPI_BYTE, &type);
    MPI_Type_commit(&type);
    for (int p = 0; p < PAIRS; p++) /* 1. count the rows */
        if (ids[p] >= 0)
            out[owner(ids[p])]++;
    MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, MPI_COMM_WORLD);
    place(out, out_displs); /* 2. find places and memory */
    place(out, next);
    rows_in = place(in, in_displs);
    rows = malloc((size_t)(rows_in + 1) * sizeof(*rows));
    for (int p = 0; p < PAIRS; p++) { /* 3. pack */
        slots[p] = ids[p] >= 0 ? next[owner(ids[p])]++ : -1;
        for (int h = 0; h < HIDDEN && ids[p] >= 0; h++)
            packed[slots[p]].values[h] = tokens[p / CHOICES][h];
        if (ids[p] >= 0)
            packed[slots[p]].expert = (int)ids[p];
    }
    MPI_Alltoallv(packed, out, out_displs, type, rows, in, in_displs,
                  type, MPI_COMM_WORLD); /* 4. send */
    compute(rows, rows_in);
    MPI_Alltoallv(rows, in, in_displs, type, packed, out, out_displs,
                  type, MPI_COMM_WORLD); /* 5. send back */
    for (int p = 0; p < PAIRS; p++)      /* 6. sum */
        for (int h = 0; h < HIDDEN && slots[p] >= 0; h++)
            sums[p / CHOICES][h] +=
                weights[p] * packed[slots[p]].values[h];
    free(rows);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    const int64_t ids[PAIRS] = {0, 5, 3, 6, 7, 1, 2, -1};
    const float weights[PAIRS] = {.25f, .75f, .5f, .5f, .5f, .5f, 1, 0};
    float tokens[TOKENS][HIDDEN] = {{1, 10}, {2, 20}, {3, 30}, {4, 40}};
    float sums[TOKENS][HIDDEN] = {{0}};

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (EXPERTS % size)
        MPI_Abort(MPI_COMM_WORLD, 1);
    exchange(ids, weights, tokens, sums);
    for (int t = 0; t < TOKENS; t++)
        printf("rank %d, token %d: %.2f %.2f\n", rank, t, sums[t][0],
               sums[t][1]);
    MPI_Finalize();
    return 0;
}

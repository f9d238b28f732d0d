/* SPDX-License-Identifier: BSD-3-Clause */
/* star_pairs.h - random stars made twice, of type basic and of type epx, and the units and
   operations that both are tried with. */
#ifndef EPX_TESTS_STAR_PAIRS_H
#define EPX_TESTS_STAR_PAIRS_H

#include <petscsf.h>

enum { BASIC, EPX, NUM_TYPES };

/* What values the elements of a unit have. */
enum values { BYTES, SMALL_INTS, REALS };

struct unit_case {
    const char *name;
    MPI_Datatype type;
    enum values values; /* a unit is full of elements of this kind and length */
    size_t element_bytes;
    const char *ops; /* of op_cases, by letter */
};

struct op_case {
    char letter;
    const char *name;
    MPI_Op op;
};

struct pair {
    PetscSF stars[NUM_TYPES];
    PetscInt num_roots, num_places; /* of this rank; places of leaves, also those without one */
    int single;                     /* no root of any rank has several leaves */
};

enum { MAX_UNITS = 32, MAX_OPS = 16 };
struct cases {
    struct unit_case units[MAX_UNITS];
    struct op_case ops[MAX_OPS];
    int num_units, num_ops;
};

PetscErrorCode cases_make(struct cases *cases);
PetscErrorCode cases_free(struct cases *cases);

/* The shape, 0 to NUM_SHAPES - 1, says how many roots and leaves ranks have, and where. */
enum { NUM_SHAPES = 6 };
PetscErrorCode pair_make(int shape, struct pair *pair);
PetscErrorCode pair_free(struct pair *pair);

/* Numbers are the same in every run: seed and rank decide. */
void random_seed(unsigned long seed);
unsigned long random_below(unsigned long bound);
PetscErrorCode random_units(const struct unit_case *unit, PetscInt num, void *units);

#endif

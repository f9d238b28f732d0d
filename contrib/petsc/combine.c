/* SPDX-License-Identifier: BSD-3-Clause */
/* combine.c - copies units and combines them element by element, in the order of the places: the
   arithmetic of PETSc's basic stars, so that the results have the same bytes. */
#include <string.h>

#include "combine.h"

/* Calls row(target, source, elements) for each run of units; places of one side at least are
   packed. */
static void move_runs(const struct move *move, void (*row)(void *, const void *, PetscInt),
                      size_t unit_bytes)
{
    const struct places *runs = move->from->num_runs > 0 ? move->from : move->to;
    const PetscInt num = runs->num_runs > 0 ? runs->num_runs : runs->count > 0;

    for (PetscInt i = 0; i < num; i++) {
        const PetscInt begin = runs->num_runs > 0 ? runs->runs[i] : 0;
        const PetscInt end = runs->num_runs > 0 ? runs->runs[i + 1] : runs->count;

        row((char *)move->target + place_of(move->to, begin) * unit_bytes,
            (const char *)move->source + place_of(move->from, begin) * unit_bytes,
            (end - begin) * move->width);
    }
}

static PetscBool has_runs(const struct move *move)
{
    const PetscBool from = (PetscBool)(!move->from->index || move->from->num_runs > 0);
    const PetscBool to = (PetscBool)(!move->to->index || move->to->num_runs > 0);

    return (PetscBool)(from && to && (!move->from->index || !move->to->index));
}

static void copy_row(void *target, const void *source, PetscInt bytes)
{
    memmove(target, source, bytes);
}

static inline void copy_each(const struct move *move, size_t bytes)
{
    for (PetscInt i = 0; i < move->from->count; i++)
        memmove((char *)move->target + place_of(move->to, i) * bytes,
                (const char *)move->source + place_of(move->from, i) * bytes, bytes);
}

void copy_units(const struct move *move)
{
    if (has_runs(move))
        move_runs(move, copy_row, move->width);
    else if (move->width == 4)
        copy_each(move, 4);
    else if (move->width == 8)
        copy_each(move, 8);
    else if (move->width == 16)
        copy_each(move, 16);
    else
        copy_each(move, move->width);
}

/* Loops for one element type and one operation. In APPLY t is an element of the target and s one of
   the source. Units of one element have a loop of their own, which the compiler sees to. */
#define COMBINE(name, Type, APPLY)                                                                 \
    static void name##_row(void *target, const void *source, PetscInt num)                         \
    {                                                                                              \
        Type *restrict const to = target;                                                          \
        const Type *restrict const from = source;                                                  \
        for (PetscInt i = 0; i < num; i++) {                                                       \
            const Type t = to[i], s = from[i];                                                     \
            to[i] = (APPLY);                                                                       \
        }                                                                                          \
    }                                                                                              \
    static inline void name##_each(const struct move *move, PetscInt width)                        \
    {                                                                                              \
        for (PetscInt i = 0; i < move->from->count; i++) {                                         \
            Type *const to = (Type *)move->target + place_of(move->to, i) * width;                 \
            const Type *const from = (const Type *)move->source + place_of(move->from, i) * width; \
            for (PetscInt k = 0; k < width; k++) {                                                 \
                const Type t = to[k], s = from[k];                                                 \
                to[k] = (APPLY);                                                                   \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name(const struct move *move)                                                      \
    {                                                                                              \
        if (has_runs(move))                                                                        \
            move_runs(move, name##_row, move->width * sizeof(Type));                               \
        else if (move->width == 1)                                                                 \
            name##_each(move, 1);                                                                  \
        else                                                                                       \
            name##_each(move, move->width);                                                        \
    }

/* The source is read before anything is stored: fetched may be the source. */
#define FETCH_AND_ADD(name, Type)                                                                  \
    static void name##_fetch(const struct move *move)                                              \
    {                                                                                              \
        const PetscInt width = move->width;                                                        \
        for (PetscInt i = 0; i < move->from->count; i++) {                                         \
            Type *const to = (Type *)move->target + place_of(move->to, i) * width;                 \
            const PetscInt at = place_of(move->from, i) * width;                                   \
            for (PetscInt k = 0; k < width; k++) {                                                 \
                const Type added = ((const Type *)move->source)[at + k];                           \
                ((Type *)move->fetched)[at + k] = to[k];                                           \
                to[k] = to[k] + added;                                                             \
            }                                                                                      \
        }                                                                                          \
    }

#define ARITHMETIC(name, Type)                                                                     \
    COMBINE(name##_sum, Type, t + s)                                                               \
    COMBINE(name##_prod, Type, t *s)                                                               \
    FETCH_AND_ADD(name, Type)

#define COMPARISONS(name, Type)                                                                    \
    COMBINE(name##_max, Type, PetscMax(t, s))                                                      \
    COMBINE(name##_min, Type, PetscMin(t, s))

#define INTEGER(name, Type)                                                                        \
    ARITHMETIC(name, Type)                                                                         \
    COMPARISONS(name, Type)                                                                        \
    COMBINE(name##_land, Type, t &&s)                                                              \
    COMBINE(name##_lor, Type, t || s)                                                              \
    COMBINE(name##_lxor, Type, !t != !s)                                                           \
    COMBINE(name##_band, Type, t &s)                                                               \
    COMBINE(name##_bor, Type, t | s)                                                               \
    COMBINE(name##_bxor, Type, t ^ s)

/* A value and its place, as MPI_MAXLOC has them: of equal values the lower place stays. */
#define PAIR(name, Type)                                                                           \
    struct name {                                                                                  \
        Type value, place;                                                                         \
    };                                                                                             \
    static struct name name##_lower(struct name t, struct name s)                                  \
    {                                                                                              \
        t.place = PetscMin(t.place, s.place);                                                      \
        return t;                                                                                  \
    }                                                                                              \
    COMBINE(name##_maxloc, struct name,                                                            \
            t.value == s.value  ? name##_lower(t, s)                                               \
            : t.value > s.value ? t                                                                \
                                : s)                                                               \
    COMBINE(name##_minloc, struct name,                                                            \
            t.value == s.value  ? name##_lower(t, s)                                               \
            : t.value < s.value ? t                                                                \
                                : s)

ARITHMETIC(real, PetscReal)
COMPARISONS(real, PetscReal)
#if defined(PETSC_HAVE_COMPLEX)
ARITHMETIC(complex_number, PetscComplex)
#endif
INTEGER(petsc_int, PetscInt)
INTEGER(int, int)
INTEGER(signed_char, signed char)
INTEGER(unsigned_char, unsigned char)
PAIR(int_pair, int)
PAIR(petsc_int_pair, PetscInt)

enum operation {
    OP_SUM,
    OP_PROD,
    OP_MAX,
    OP_MIN,
    OP_LAND,
    OP_LOR,
    OP_LXOR,
    OP_BAND,
    OP_BOR,
    OP_BXOR,
    OP_MAXLOC,
    OP_MINLOC,
    OP_FETCH,
    NUM_OPERATIONS
};

#define INTEGER_ROW(name)                                                                          \
    {                                                                                              \
        name##_sum, name##_prod, name##_max, name##_min, name##_land, name##_lor, name##_lxor,     \
            name##_band, name##_bor, name##_bxor, NULL, NULL, name##_fetch                         \
    }

static combine_function *const functions[NUM_ELEMENTS][NUM_OPERATIONS] = {
    [ELEMENT_REAL] = {[OP_SUM] = real_sum,
                      [OP_PROD] = real_prod,
                      [OP_MAX] = real_max,
                      [OP_MIN] = real_min,
                      [OP_FETCH] = real_fetch},
#if defined(PETSC_HAVE_COMPLEX)
    [ELEMENT_COMPLEX] = {[OP_SUM] = complex_number_sum,
                         [OP_PROD] = complex_number_prod,
                         [OP_FETCH] = complex_number_fetch},
#endif
    [ELEMENT_PETSC_INT] = INTEGER_ROW(petsc_int),
    [ELEMENT_INT] = INTEGER_ROW(int),
    [ELEMENT_SIGNED_CHAR] = INTEGER_ROW(signed_char),
    [ELEMENT_UNSIGNED_CHAR] = INTEGER_ROW(unsigned_char),
    [ELEMENT_INT_PAIR] = {[OP_MAXLOC] = int_pair_maxloc, [OP_MINLOC] = int_pair_minloc},
    [ELEMENT_PETSC_INT_PAIR] =
        {[OP_MAXLOC] = petsc_int_pair_maxloc, [OP_MINLOC] = petsc_int_pair_minloc},
};

/* MPIU_SUM, MPIU_MAX and MPIU_MIN are operations of PETSc's own where MPI lacks the type. */
static enum operation operation_of(MPI_Op op)
{
    const struct {
        MPI_Op op;
        enum operation operation;
    } known[] = {{MPI_SUM, OP_SUM},   {MPIU_SUM, OP_SUM},      {MPI_PROD, OP_PROD},
                 {MPI_MAX, OP_MAX},   {MPIU_MAX, OP_MAX},      {MPI_MIN, OP_MIN},
                 {MPIU_MIN, OP_MIN},  {MPI_LAND, OP_LAND},     {MPI_LOR, OP_LOR},
                 {MPI_LXOR, OP_LXOR}, {MPI_BAND, OP_BAND},     {MPI_BOR, OP_BOR},
                 {MPI_BXOR, OP_BXOR}, {MPI_MAXLOC, OP_MAXLOC}, {MPI_MINLOC, OP_MINLOC}};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].op == op)
            return known[i].operation;
    return NUM_OPERATIONS;
}

combine_function *find_combine(enum element element, MPI_Op op)
{
    const enum operation operation = operation_of(op);

    return operation == NUM_OPERATIONS ? NULL : functions[element][operation];
}

combine_function *find_fetch_and_add(enum element element)
{
    return functions[element][OP_FETCH];
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * scenes.h - scenes that ranks play without MPI: each is a group of processes that fork starts, of
 * which the last rank may do something wrong.
 */
#ifndef TESTS_CONTROL_SCENES_H
#define TESTS_CONTROL_SCENES_H

#include <epx.h>
#include <stdatomic.h>
#include <stddef.h>

enum { MAX_RANKS = 70, MOST_BYTES = 1 << 14, TIMEOUT_MS = 20000, SOON_MS = 1000 };

/* Memory by which ranks gather. */
struct board {
    _Atomic int came, round, errors;
    char bytes[MAX_RANKS][MOST_BYTES];
};

struct scene;

struct group {
    struct board *board;
    int rank, size;
    int calls;         /* of allgather, by this rank */
    const char *fault; /* what this rank does wrong; "" = nothing */
    const struct scene *scene;
};

struct scene {
    const char *claim;
    int size;
    void (*run)(struct group *group);
    const char *fault; /* of the last rank, or of all that fall */
    int falls;         /* so many of the last ranks do not end by themselves, or by a signal */
    int number;        /* when, or how much */
};

/* Where ranks have the memory that an exchange uses; NULL = the host. put copies an image there,
 * and returns where that is; get copies it back; await is called before EPX_Wait, NULL = nothing
 * is. */
struct scene_memory {
    void *(*put)(const void *image, size_t bytes);
    void (*get)(void *image, size_t bytes);
    void (*await)(void);
};

extern struct board *scene_boards[2];
extern const struct scene_memory *scene_memory;
/* How long gather waits for a rank that does not come. */
extern int scene_patience_ms;

/* Says what is wrong on the rank; the program fails then. Returns 0. */
int scene_complain(int rank, const char *format, ...);
#define EXPECT(group, condition, ...)                                                              \
    ((condition) ? 1 : scene_complain((group)->rank, #condition ": " __VA_ARGS__))

double now_ms(void);
void nap_ms(long ms);
int has_fault(const struct group *group, const char *fault);

/* Gathers on the group's board, as EPX_Bootstrap wants it: 0, or 1 if a rank does not come. */
int scene_gather(const void *own, void *all, size_t bytes, struct group *group);
/* Makes a communicator by this allgather, whose arg is the group, with hints; the last one NULL. */
int scene_create(struct group *group,
                 int (*allgather)(const void *own, void *all, size_t bytes, void *arg),
                 const char *const hints[], EPX_Comm *comm);
/* Every rank sends each other one row of its own. */
int scene_exchange(const struct group *group, EPX_Comm comm, MPI_Status *status);
/* Plays the scenes whose claims have the text in them, NULL = all. Returns the program's code. */
int scene_play(const struct scene *scenes, int num, const char *text);

#endif

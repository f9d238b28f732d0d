/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * memory.pml - what the models share: memory that other ranks store into, as C11 promises it, and
 * ranks that die or are late. A model defines CELLS before, how many cells each writer has; a
 * writer is a rank, unless the model defines WRITERS.
 *
 * A plain store lands between its place in the program and the next release of its rank. No step of
 * a rank depends on what lies in a cell, flags alone decide what it does next. So a read that is
 * wrong is so by one store, which landed too early or too late, and it is enough to look at runs
 * where all plain stores land at once and at runs where all land as late as they may. A flag that
 * is posted without release, as only planted faults do it, overtakes stores that are under way.
 * Loads stand where the program has them, which the acquire before them makes true.
 *
 * Most values are the number of an operation or a round; in the beginning all are 0.
 */
#define NOBODY 255

#ifndef WRITERS
#define WRITERS RANKS
#endif
byte memory[WRITERS * CELLS];
byte under_way[WRITERS * CELLS]; /* the value of a store that has not landed; 0 = there is none */
bool lands_late;

#define CELL(writer, cell) ((writer) * CELLS + (cell))

inline store(writer, cell, value)
{
    if
    :: lands_late -> under_way[CELL(writer, cell)] = value
    :: else -> memory[CELL(writer, cell)] = value
    fi
}

/* epx_flag_post (src/base/flags.h), or a fence and a relaxed store in kernels (lanes.cuh). */
inline post(writer, flag, value)
{
    d_step {
        i = 0;
        do
        :: i < CELLS && under_way[CELL(writer, i)] != 0 ->
            memory[CELL(writer, i)] = under_way[CELL(writer, i)];
            under_way[CELL(writer, i)] = 0;
            i++
        :: i < CELLS && under_way[CELL(writer, i)] == 0 -> i++
        :: i == CELLS -> break
        od;
        i = 0;
        flag = value
    }
}

inline post_relaxed(writer, flag, value)
{
    flag = value
}

/*
 * Fate: a rank dies at any step; or time-outs are possible from any step on, because a rank is late
 * (as any may be: the others make any number of steps between two of its own); or neither. Two
 * ranks are alike, so it is rank 0 that dies.
 */
byte dead = NOBODY;
bool late;
bool finished; /* comm->finished on all ranks; comm_end.pml has how they come to it */

proctype fate()
{
    if
    :: skip
    :: late = true
    :: d_step { dead = 0; late = true }
#if RANKS > 2
    :: d_step { dead = 1; late = true }
    :: d_step { dead = 2; late = true }
#endif
    fi
}

/* A wait ends by its condition, by the communicator's end, or by a time-out, which is that end
 * (epx_comm_clock in core/health/patience.c; keep_waiting in kernels/protocol/waits.cuh). */
#define AWAIT(condition)                                                                          \
    if                                                                                             \
    :: condition                                                                                   \
    :: finished -> goto over                                                                       \
    :: late && !finished && !(condition) -> finished = true; goto over                             \
    fi

/* All ranks start at once; a rank knows its number and, as first and second, those of the others. A
 * step for each other rank is a macro of one argument. */
#if RANKS == 2
#define RANK(me) proctype rank(byte me, first)
#define START_RANKS run rank(0, 1); run rank(1, 0)
#define EACH_RANK(step) step(first)
#else
#define RANK(me) proctype rank(byte me, first, second)
#define START_RANKS run rank(0, 1, 2); run rank(1, 0, 2); run rank(2, 0, 1)
#define EACH_RANK(step) step(first); step(second)
#endif

/* Among more than two writers a burst of loads or stores is one step, or there were too many
 * states. What others may do in between two of them show. */
#if RANKS == 2 && WRITERS == 2
#define BURST
#else
#define BURST atomic
#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress.pml - large operations between kernels of different ranks, in which rows are taken while
 * others are on their way: src/kernels/wires/sender_progress.cuh has the protocol, device.pml
 * how operations begin, of which nothing but the ready words is here. A comment before a step names
 * the function that does it, in sender_progress.cuh if no other file is named.
 *
 * An operation is a kernel that agrees, then two blocks, of one kernel or one each (phases.cuh):
 * one sends rows, each to where the row of the operation before lay, the other takes them. In some
 * operations rank 0 alone has rows.
 *
 * Claims: a row that a block takes is that of its operation; no wait is for ever while all ranks
 * live; after a death or a time-out every kernel of the survivors ends.
 *
 * run: RANKS=2 OPS=2 TASKS=1
 * long: RANKS=2 OPS=2
 * long: RANKS=2 OPS=3 TASKS=1
 * long: RANKS=3 OPS=2 TASKS=1
 * fails with RANKS=2 OPS=2: TELL_FIRST TELL_AHEAD NO_READY EARLY_NEXT NO_TAG
 * hangs with RANKS=2 OPS=2: EQUAL
 */
#ifndef TASKS
#define TASKS 2
#endif
#define CELLS (RANKS * TASKS)
#include "memory.pml"

#define ROW(to) ((to) * TASKS + task - 1)
#define LINE(owner, writer, n) (((n) & 1) * RANKS * RANKS + (owner) * RANKS + (writer))
#define PROGRESS(owner, writer) ((owner) * RANKS + (writer))
byte ready[2 * RANKS * RANKS];
byte progress[RANKS * RANKS]; /* tagged with the operation */
byte ended[RANKS];            /* blocks of all kernels that move rows, so far */
#ifdef FAULT_NO_TAG
#define TAGGED(step) (step)
#else
#define TAGGED(step) (n * (TASKS + 1) + (step))
#endif

#define ALL_SEND 1
#define ONE_SENDS 2
byte form[OPS + 2];

inline choose_form()
{
    atomic {
        if
        :: form[n] == 0 -> form[n] = ALL_SEND
#if RANKS == 2 /* or there were too many states */
        :: form[n] == 0 -> form[n] = ONE_SENDS
#endif
        :: else
        fi
    }
}

#define SENDS(rank) (form[n] == ALL_SEND || (rank) == 0)

/* post_ready (ready_words.cuh) */
#define POST_READY(r) ready[LINE(r, me, n)] = n
/* await_ready (ready_words.cuh), in the kernel before */
#ifdef FAULT_NO_READY
#define AWAIT_READY(r) skip
#else
#define AWAIT_READY(r) AWAIT(ready[LINE(me, r, n)] >= n)
#endif
/* sender::end (row_movers.cuh), sum_sender (sum_movers.cuh) */
#define STORE_ROW(r) store(me, ROW(r), n)
/* tell_rank */
#ifdef FAULT_TELL_FIRST
#define TELL(r) post_relaxed(me, progress[PROGRESS(r, me)], TAGGED(task))
#else
#define TELL(r) post(me, progress[PROGRESS(r, me)], TAGGED(task))
#endif
/* await_progress, then what takes the row */
#ifdef FAULT_EQUAL
#define HAS_COME(r) (progress[PROGRESS(me, r)] == TAGGED(task))
#else
#define HAS_COME(r)                                                                                \
    (progress[PROGRESS(me, r)] >= TAGGED(task) && progress[PROGRESS(me, r)] <= TAGGED(TASKS))
#endif
#define TAKE_ROW(r)                                                                                \
    if                                                                                             \
    :: SENDS(r) -> AWAIT(HAS_COME(r)); assert(memory[CELL(r, ROW(me))] == n)                       \
    :: else                                                                                        \
    fi

/* is_last_mover, end_operation (protocol.cuh): the next operation begins when this one has ended */
#ifdef FAULT_EARLY_NEXT /* when its own block has ended */
#define AWAIT_END n++
#else
#define AWAIT_END ended[me]++; AWAIT(ended[me] >= 2 * n); n++
#endif

#if RANKS == 2
#define BLOCK(kind) proctype kind(byte me, first)
#define START_BLOCKS(kind) run kind(0, 1); run kind(1, 0)
#else
#define BLOCK(kind) proctype kind(byte me, first, second)
#define START_BLOCKS(kind) run kind(0, 1, 2); run kind(1, 0, 2); run kind(2, 0, 1)
#endif

/* send_all, send_chunks */
BLOCK(sending)
{
    byte n = 1, task, i;

    {
        do
        :: n > OPS -> break
        :: else ->
            choose_form();
            BURST { EACH_RANK(POST_READY) };
            EACH_RANK(AWAIT_READY);
            task = 1;
            do
            :: task > TASKS || !SENDS(me) -> break
            :: else ->
#ifdef FAULT_TELL_AHEAD
                EACH_RANK(TELL);
#endif
                BURST { EACH_RANK(STORE_ROW) };
                EACH_RANK(TELL);
                task++
            od;
            AWAIT_END
        od
    } unless { dead == me };
over:
    skip
}

/* take_all, take_tokens */
BLOCK(taking)
{
    byte n = 1, task;

    {
        do
        :: n > OPS -> break
        :: else ->
            choose_form();
            EACH_RANK(AWAIT_READY);
            task = 1;
            do
            :: task > TASKS -> break
            :: else -> EACH_RANK(TAKE_ROW); task++
            od;
            AWAIT_END
        od
    } unless { dead == me };
over:
    skip
}

init {
    if
    :: lands_late = true
    :: skip
    fi;
    atomic {
        START_BLOCKS(sending);
        START_BLOCKS(taking);
#if RANKS == 2
        run fate()
#endif
    }
}

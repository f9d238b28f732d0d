/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.pml - kernels of different ranks that store into each other's windows: the protocol of
 * src/kernels/protocol/protocol.cuh. comm_end.pml has the abort word. The names are those of the
 * code. A comment before a step names the function that does it, in protocol.cuh if no other file
 * is named.
 *
 * An operation is a kernel of some blocks. Rows go round by round through the stages, or nothing
 * follows the ready words here: the ranks disagree, or a kernel behind this one moves the rows by
 * words of its own, which progress.pml has. A dispatch of several fields has lists besides, which
 * say where the others store its rows. A rank posts its list behind its ready word, or if a routing
 * was the operation's first half, once the ranks have agreed. In some operations rank 0 alone is in
 * such a dispatch: it posts a list for which nobody waits, and waits for none.
 *
 * Claims: ready words, lists and rows that a block reads are those of its operation and round; no
 * row in a stage is overwritten before all blocks have taken what they need; no wait is for ever
 * while all ranks live; after a death or a time-out every kernel of the survivors ends.
 *
 * run: RANKS=2 OPS=4 BLOCKS=1
 * run: RANKS=2 OPS=2 BLOCKS=2
 * run: RANKS=3 OPS=2 BLOCKS=1
 * fails with RANKS=2 OPS=4 BLOCKS=1: ONE_BANK ARRIVAL_FIRST CREDIT_FIRST NO_CREDIT
 * fails with RANKS=2 OPS=4 BLOCKS=1: ONE_LIST_BANK NO_LIST_WAIT
 * fails with RANKS=2 OPS=2 BLOCKS=2: EARLY_READY ONE_BLOCK
 * hangs with RANKS=2 OPS=2 BLOCKS=1: NO_VERDICT
 */
#define ROUNDS 2
#define WRITERS (RANKS * BLOCKS)
#define CELLS RANKS
#include "memory.pml"

/* What a block writes for each rank: a part of its stage. */
#define MINE (me * BLOCKS + b)
#define STAGE(to) (to)
#define STAMP (ROUNDS * (n - 1) + round + 1)

#ifdef FAULT_ONE_BANK
#define BANK(n) 0
#else
#define BANK(n) ((n) & 1)
#endif
#define LINE(owner, writer) ((owner) * RANKS + (writer))
#define READY(owner, writer, n) (BANK(n) * RANKS * RANKS + LINE(owner, writer))
byte ready[2 * RANKS * RANKS]; /* a word that is its own tag */
#ifdef FAULT_ONE_LIST_BANK
#define LIST(owner, writer, n) LINE(owner, writer)
#else
#define LIST(owner, writer, n) (((n) & 1) * RANKS * RANKS + LINE(owner, writer))
#endif
byte list[2 * RANKS * RANKS]; /* a word that is its own tag */
byte arrived[RANKS * RANKS];
byte credited[RANKS * RANKS];
byte ended[RANKS]; /* blocks of all kernels that wait, so far */

#define STAGED 1
#define AGREED 2 /* or not: nothing follows the ready words */
#define LISTED 3 /* several fields */
#define HALVED 4 /* several fields, behind a routing */
#define REFUSED 5 /* several fields on rank 0, not so on the others */
byte form[OPS + 2];

/* The first block that begins an operation chooses for all; nobody needs the choice before the last
 * one any more. */
inline choose_form()
{
    atomic {
        if
        :: form[n] == 0 ->
            if
            :: form[n] = STAGED
            :: form[n] = LISTED
#if RANKS == 2 /* or there were too many states */
            :: form[n] = AGREED
            :: form[n] = HALVED
            :: form[n] = REFUSED
#endif
            fi;
            if
            :: n > 2 -> form[n - 2] = 0
            :: else
            fi
        :: else
        fi
    }
}

/* Whether this rank is in a dispatch of several fields; whether it waits for lists. */
#define HAS_FIELDS (form[n] >= LISTED && (form[n] != REFUSED || me == 0))
#ifdef FAULT_NO_VERDICT /* a rank waits for lists of others that are in another operation */
#define AWAITS_LISTS HAS_FIELDS
#else
#define AWAITS_LISTS (HAS_FIELDS && form[n] != REFUSED)
#endif

/* post_ready (ready_words.cuh), by block 0 */
#define POST_READY(r) ready[READY(r, me, n)] = n
/* await_tagged (waits.cuh), by await_ready (ready_words.cuh) */
#define AWAIT_READY(r)                                                                            \
    AWAIT(ready[READY(me, r, n)] >= n); assert(ready[READY(me, r, n)] == n)

/* post_list (src/kernels/flows/rows/fields.cuh), by block 0 */
#define POST_LIST(r) list[LIST(r, me, n)] = n
/* await_list there */
#ifdef FAULT_NO_LIST_WAIT /* a rank takes the lists to have come with the ready words */
#define AWAIT_LIST(r) skip
#else
#define AWAIT_LIST(r) AWAIT(list[LIST(me, r, n)] >= n)
#endif
/* read_windows there, in this kernel and in the one behind it */
#define READ_LIST(r) assert(list[LIST(me, r, n)] == n)

/* signal_arrival */
#ifdef FAULT_ARRIVAL_FIRST
#define SIGNAL_ARRIVAL(r) post_relaxed(MINE, arrived[LINE(r, me)], arrived[LINE(r, me)] + 1)
#else
#define SIGNAL_ARRIVAL(r) post(MINE, arrived[LINE(r, me)], arrived[LINE(r, me)] + 1)
#endif
/* await_arrivals */
#ifdef FAULT_ONE_BLOCK /* a rank waits for one of the blocks */
#define TARGET (arrivals + round * BLOCKS + 1)
#else
#define TARGET (arrivals + (round + 1) * BLOCKS)
#endif
#define AWAIT_ARRIVALS(r) AWAIT(arrived[LINE(me, r)] >= TARGET)
/* signal_credit */
#define SIGNAL_CREDIT(r) post(MINE, credited[LINE(r, me)], credited[LINE(r, me)] + 1)
/* await_credits */
#define AWAIT_CREDITS(r) AWAIT(credited[LINE(me, r)] >= credits + round * BLOCKS)

/* send_rows (src/kernels/flows/rows/dispatch_rounds.cu), send_sums (src/kernels/flows/sums) */
#define STORE_STAGE(r) store(MINE, STAGE(r), STAMP)
/* take_rows (src/kernels/flows/rows/dispatch_rounds.cu): a block takes what any block stored */
#define READ_BLOCK(r, cell, block) assert(memory[CELL((r) * BLOCKS + block, cell)] == STAMP)
#if BLOCKS == 1
#define READ_STAGE(r) READ_BLOCK(r, STAGE(me), 0)
#else
#define READ_STAGE(r) READ_BLOCK(r, STAGE(me), 0); READ_BLOCK(r, STAGE(me), 1)
#endif

/* move_in_rounds (src/kernels/flows/rows/dispatch_rounds.cu) */
inline move_in_rounds()
{
    round = 0;
    do
    :: round == ROUNDS -> break
    :: else ->
#ifndef FAULT_NO_CREDIT
        if
        :: round > 0 -> EACH_RANK(AWAIT_CREDITS)
        :: else
        fi;
#endif
#ifdef FAULT_ARRIVAL_FIRST
        EACH_RANK(SIGNAL_ARRIVAL);
        EACH_RANK(STORE_STAGE);
#else
        BURST { EACH_RANK(STORE_STAGE) };
        EACH_RANK(SIGNAL_ARRIVAL);
#endif
        EACH_RANK(AWAIT_ARRIVALS);
#ifdef FAULT_CREDIT_FIRST
        EACH_RANK(SIGNAL_CREDIT);
#endif
        BURST { EACH_RANK(READ_STAGE) };
#ifndef FAULT_CREDIT_FIRST
        if
        :: round + 1 < ROUNDS -> EACH_RANK(SIGNAL_CREDIT)
        :: else
        fi;
#endif
        round++
    od;
    arrivals = arrivals + ROUNDS * BLOCKS;
    credits = credits + (ROUNDS - 1) * BLOCKS
}

#if RANKS == 2
proctype block(byte me, b, first)
#else
proctype block(byte me, b, first, second)
#endif
{
    byte n = 1, round, arrivals, credits, i;

    {
        do
        :: n > OPS -> break
        :: else ->
            choose_form();
            /* begin_exchange (ready_words.cuh) */
            if
            :: b == 0 -> EACH_RANK(POST_READY)
            :: else
            fi;
            /* begin_moves */
            if
            :: b == 0 && HAS_FIELDS && form[n] != HALVED -> EACH_RANK(POST_LIST)
            :: else
            fi;
            EACH_RANK(AWAIT_READY);
            if
            :: b == 0 && form[n] == HALVED -> EACH_RANK(POST_LIST)
            :: else
            fi;
            if
            :: AWAITS_LISTS -> EACH_RANK(AWAIT_LIST); BURST { EACH_RANK(READ_LIST) }
            :: else
            fi;
            if
            :: form[n] == STAGED -> move_in_rounds()
            :: else
            fi;
            /* is_last_block, end_exchange; the next kernel begins when this one has ended */
            ended[me]++;
#ifdef FAULT_EARLY_READY /* the next kernel begins when its own block has ended */
            n++
#else
            AWAIT(ended[me] >= n * BLOCKS);
            n++
#endif
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
#if RANKS == 2
        run block(0, 0, 1); run block(1, 0, 0);
#if BLOCKS == 2
        run block(0, 1, 1); run block(1, 1, 0);
#endif
#else
        run block(0, 0, 1, 2); run block(1, 0, 0, 2); run block(2, 0, 0, 1);
#endif
#if BLOCKS == 1 /* again */
        run fate()
#endif
    }
}

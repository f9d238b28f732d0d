/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hier.pml - areas of shared memory inside a node and messages between nodes: the protocol of
 * src/coll/hier/hier.c. The names are those of the code. A comment before a step names the function
 * that does it, in hier.c if no other file is named.
 *
 * Two ranks are one node. Of three, 0 and 1 are a node and 2 is another; 0 is the relay there for
 * the rows of 2, and 2 here for those of 0 and 1.
 *
 * Claims: what a rank reads of an area, or of its tables, is of its round; nothing is written
 * there, nor arrives there, while a rank of the node may still read the round before; ranks of two
 * nodes never wait for each other for ever; after a death or a time-out every survivor ends.
 *
 * run: RANKS=2 OPS=3
 * run: RANKS=3 OPS=1
 * long: RANKS=3 OPS=2
 * fails with RANKS=3 OPS=1: FILLED_FIRST TAKEN_FIRST AREA_TOO_FEW EARLY_MESSAGE
 * hangs with RANKS=3 OPS=1: CYCLE
 */
#define CELLS (RANKS + 2)
#include "memory.pml"

/* A rank's area: its own rows or parts, tables (home_at, row), and what a relay got from a home. */
#define ROWS 0
#define TABLES 1
#define ENTRIES(home) (2 + (home))

#define LINE(from, to) ((from) * RANKS + (to))
byte epoch[RANKS];                   /* ready words, told by an allgather */
byte filled[RANKS], taken[RANKS];    /* in each rank's part of the window */
byte sent[RANKS * RANKS];            /* the round whose message is under way, from and to */
byte received[RANKS * RANKS];        /* the round whose message has come, from and to */
bool eager;                          /* a message is sent before its receiver waits for it */

/* An operation has two rounds, alike on all ranks; the first rank that begins it chooses. */
#define ROUNDS 2
#define DISPATCH 1
#define COMBINE 2
byte verb[OPS + 1];

inline post_ready()
{
    atomic {
        if
        :: verb[n] == 0 -> verb[n] = DISPATCH
        :: verb[n] == 0 -> verb[n] = COMBINE
        :: else
        fi;
        epoch[me] = n
    }
}

#if RANKS == 2
#define HAS_MATE true
#define GOES(from, to) false
#else
#define HAS_MATE (me < 2)
/* A home's rows go to its relay (epx_relay in src/kernels/node_rows.h), the sums back. */
#define SERVES(relay, home) ((relay) == 2 || ((home) == 2 && (relay) == 0))
#define GOES(from, to) (verb[n] == DISPATCH -> SERVES(to, from) : SERVES(from, to))
#endif

/* epx_staged_exchange (src/coll/staged/staged.c): starts the sends; receives are posted */
#define SEND(r) if :: GOES(me, r) -> sent[LINE(me, r)] = round :: else fi
/* epx_staged_done there: waits for what comes, in a dispatch into the area, and for sends */
#define RECEIVE(r)                                                                                \
    if                                                                                             \
    :: GOES(r, me) ->                                                                              \
        AWAIT(sent[LINE(r, me)] >= round);                                                         \
        LAND(r);                                                                                   \
        received[LINE(r, me)] = round                                                              \
    :: else                                                                                        \
    fi
#define LAND(r) if :: verb[n] == DISPATCH -> store(me, ENTRIES(r), round) :: else fi
#define AWAIT_SENT(r)                                                                             \
    if :: GOES(me, r) && !eager -> AWAIT(received[LINE(me, r)] >= round) :: else fi

#define READ_OWN_ROWS(r)                                                                          \
    assert(memory[CELL(r, TABLES)] == round && memory[CELL(r, ROWS)] == round)
#if RANKS == 2
#define READ_ENTRIES(r)
#else
#define READ_ENTRIES(r)                                                                           \
    if :: (r) == 0 -> assert(memory[CELL(r, ENTRIES(2))] == round) :: else fi
#endif

/* epx_hier_may_fill */
#ifdef FAULT_AREA_TOO_FEW /* a rank waits for the round before the last, as if it had two areas */
#define AWAIT_TAKEN(r) AWAIT(taken[r] + 2 >= round)
#else
#define AWAIT_TAKEN(r) AWAIT(taken[r] + 1 >= round)
#endif
/* epx_hier_all_filled */
#define AWAIT_FILLED(r) AWAIT(filled[r] >= round)

inline fill_area()
{
    d_step {
        store(me, ROWS, round);
        store(me, TABLES, round)
    }
}

#define POST_FILLED post(me, filled[me], round)
#define POST_TAKEN post(me, taken[me], round)
#define POST_RELAXED_FILLED post_relaxed(me, filled[me], round)

#define MATE(step) if :: HAS_MATE -> step(first) :: else fi

/* epx_move_hier (moves_hier.c), dispatch */
inline dispatch_round()
{
    round++;
#ifdef FAULT_EARLY_MESSAGE /* messages may arrive before the node has taken the last round */
    EACH_RANK(SEND);
    EACH_RANK(RECEIVE);
#endif
    MATE(AWAIT_TAKEN);
#ifdef FAULT_FILLED_FIRST
    POST_RELAXED_FILLED;
#endif
    fill_area();
#ifdef FAULT_CYCLE /* a home sends after it got what it relays */
    EACH_RANK(RECEIVE);
    EACH_RANK(SEND);
#elif !defined(FAULT_EARLY_MESSAGE)
    EACH_RANK(SEND);
    EACH_RANK(RECEIVE);
#endif
    EACH_RANK(AWAIT_SENT);
#ifndef FAULT_FILLED_FIRST
    POST_FILLED;
#endif
    MATE(AWAIT_FILLED);
#ifdef FAULT_TAKEN_FIRST
    POST_TAKEN;
#endif
    MATE(READ_OWN_ROWS);
    MATE(READ_ENTRIES);
#ifndef FAULT_TAKEN_FIRST
    POST_TAKEN
#endif
}

/* epx_move_hier (moves_hier.c), combine */
inline combine_round()
{
    round++;
    MATE(AWAIT_TAKEN);
#ifdef FAULT_FILLED_FIRST
    POST_RELAXED_FILLED;
#endif
    fill_area();
#ifndef FAULT_FILLED_FIRST
    POST_FILLED;
#endif
    MATE(AWAIT_FILLED);
#ifdef FAULT_TAKEN_FIRST
    POST_TAKEN;
#endif
    MATE(READ_OWN_ROWS); /* the sums that a relay sends */
    EACH_RANK(SEND);
    EACH_RANK(RECEIVE);
    EACH_RANK(AWAIT_SENT);
    MATE(READ_OWN_ROWS); /* the parts of the own node */
#ifndef FAULT_TAKEN_FIRST
    POST_TAKEN
#endif
}

#define AWAIT_READY(r) AWAIT(epoch[r] >= n)

RANK(me)
{
    byte n = 1, round, i;

    {
        do
        :: n > OPS -> break
        :: else ->
            /* epx_staged_handshake (src/coll/staged/staged.c) */
            post_ready();
            EACH_RANK(AWAIT_READY);
            do
            :: round == ROUNDS * n -> break
            :: round < ROUNDS * n && verb[n] == DISPATCH -> dispatch_round()
            :: round < ROUNDS * n && verb[n] == COMBINE -> combine_round()
            od;
            n++
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
    if
    :: eager = true
    :: skip
    fi;
    atomic {
        START_RANKS;
        run fate()
    }
}

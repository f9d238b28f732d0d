/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route.pml - a routing of many pairs between kernels of different ranks: the protocol of
 * src/kernels/routing/block_counts.cuh, and the records behind it (route_tokens.cuh there).
 * device.pml has the other operations, of which nothing but the ready words is here. The names are
 * those of the code. A comment before a step names the function that does it.
 *
 * An operation is a kernel of some blocks. There is one counter, which block 0 adds up. Some
 * operations are no routings; in some the ranks disagree, and only rank 0 is in a routing; in some
 * there is no room for all rows, so that none are sent.
 *
 * Claims: no count is overwritten before all that need it have it; the records that a block reads
 * are those of its operation; no wait is for ever while all ranks live; after a death or a time-out
 * every kernel of the survivors ends.
 *
 * run: RANKS=2 OPS=4 BLOCKS=1
 * run: RANKS=2 OPS=2 BLOCKS=2
 * fails with RANKS=2 OPS=4 BLOCKS=1: EARLY_RECORDS ARRIVAL_FIRST
 * hangs with RANKS=2 OPS=4 BLOCKS=1: ONE_BANK NO_READY
 * hangs with RANKS=2 OPS=2 BLOCKS=2: EARLY_NEXT
 */
#define WRITERS (RANKS * BLOCKS)
#define CELLS RANKS
#include "memory.pml"

#ifdef FAULT_ONE_BANK
#define BANK(n) 0
#else
#define BANK(n) ((n) & 1)
#endif
#define MINE (me * BLOCKS + b)
#define LAST (BLOCKS - 1)
#define LINE(owner, writer, n) (((n) & 1) * RANKS * RANKS + (owner) * RANKS + (writer))
#define TOTAL(owner, writer, n) (BANK(n) * RANKS * RANKS + (owner) * RANKS + (writer))
/* Words that are their own tags. */
byte ready[2 * RANKS * RANKS];
byte totals[2 * RANKS * RANKS];
byte counted[RANKS * BLOCKS]; /* word_of_block */
byte before[RANKS * BLOCKS];  /* words_before */
byte arrived[RANKS * RANKS];
byte ended[RANKS]; /* blocks of all kernels, so far */

#define ROUTED 1
#define OTHER 2
#define REFUSED 3
#define SHORT 4
byte form[OPS + 2];
/* The operation between two that share a bank may have any form; were it more, or were there deaths
 * among more blocks, there were too many states. */
#define EVEN ((n & 1) == 0)

inline choose_form()
{
    atomic {
        if
        :: form[n] == 0 -> form[n] = ROUTED
        :: form[n] == 0 -> form[n] = SHORT
#if BLOCKS == 1
        :: form[n] == 0 && EVEN -> form[n] = OTHER
        :: form[n] == 0 && EVEN -> form[n] = REFUSED
#else
        :: form[n] == 0 -> form[n] = REFUSED
#endif
        :: else
        fi
    }
}

/* post_ready (src/kernels/protocol/ready_words.cuh), by block 0 */
#define POST_READY(r) ready[LINE(r, me, n)] = n
/* await_ready there */
#define AWAIT_READY(r) AWAIT(ready[LINE(me, r, n)] >= n)
/* tell_ranks */
#define TELL_RANK(r) totals[TOTAL(r, me, n)] = n
#define AWAIT_TOTAL(r) AWAIT(totals[TOTAL(me, r, n)] == n)
/* place_chunk (src/kernels/routing/placed_pairs.cuh) */
#define STORE_RECORDS(r) store(MINE, r, n)
/* signal_arrival, await_arrivals (src/kernels/protocol/protocol.cuh) */
#ifdef FAULT_ARRIVAL_FIRST
#define SIGNAL_ARRIVAL(r)                                                                         \
    post_relaxed(MINE, arrived[(r) * RANKS + me], arrived[(r) * RANKS + me] + 1)
#else
#define SIGNAL_ARRIVAL(r) post(MINE, arrived[(r) * RANKS + me], arrived[(r) * RANKS + me] + 1)
#endif
#define AWAIT_ARRIVALS(r) AWAIT(arrived[me * RANKS + (r)] >= arrivals)
/* take_records (src/kernels/routing/placed_pairs.cuh) */
#define READ_RECORDS(r)                                                                           \
    assert(memory[CELL((r) * BLOCKS, me)] == n && memory[CELL((r) * BLOCKS + LAST, me)] == n)

/* tell_blocks; add_up_counter, by block 0 */
inline tell_counts()
{
    counted[MINE] = n;
    if
    :: b == 0 ->
        AWAIT(counted[me * BLOCKS] == n && counted[me * BLOCKS + LAST] == n);
        EACH_RANK(TELL_RANK);
        d_step { TELL_RANK(me); before[me * BLOCKS] = n; before[me * BLOCKS + LAST] = n }
    :: else
    fi
}

/* receive_counts */
inline receive_counts()
{
    EACH_RANK(AWAIT_TOTAL);
    AWAIT_TOTAL(me);
    AWAIT(before[MINE] == n)
}

/* place_chunk and exchange_records (src/kernels/routing/route_tokens.cuh) */
inline place_tokens()
{
#ifdef FAULT_ARRIVAL_FIRST
    EACH_RANK(SIGNAL_ARRIVAL);
    EACH_RANK(STORE_RECORDS);
#else
#ifndef FAULT_EARLY_RECORDS
    EACH_RANK(STORE_RECORDS);
#endif
    EACH_RANK(SIGNAL_ARRIVAL);
#endif
    arrivals = arrivals + BLOCKS;
    EACH_RANK(AWAIT_ARRIVALS);
    BURST { EACH_RANK(READ_RECORDS) }
}

proctype block(byte me, b, first)
{
    byte n = 1, arrivals, i;

    {
        do
        :: n > OPS -> break
        :: else ->
            choose_form();
            if
            :: b == 0 -> EACH_RANK(POST_READY)
            :: else
            fi;
            if
            :: form[n] == ROUTED || form[n] == SHORT || (form[n] == REFUSED && me == 0) ->
#ifdef FAULT_EARLY_RECORDS /* records are stored before the ranks agree */
                EACH_RANK(STORE_RECORDS);
#endif
                tell_counts()
            :: else
            fi;
#ifndef FAULT_NO_READY
            EACH_RANK(AWAIT_READY);
#endif
            if
            :: form[n] == ROUTED -> receive_counts(); place_tokens()
            :: form[n] == SHORT -> receive_counts()
            :: else
            fi;
            /* is_last_block, end_exchange; the next kernel begins when this one has ended */
            ended[me]++;
#ifdef FAULT_EARLY_NEXT /* the next kernel begins when its own block has ended */
            n++
#else
            AWAIT(ended[me] >= BLOCKS * n);
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
        run block(0, 0, 1); run block(1, 0, 0);
#if BLOCKS == 2
        run block(0, 1, 1); run block(1, 1, 0);
#else
        run fate()
#endif
    }
}

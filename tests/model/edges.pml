/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * edges.pml - the words and rows of the edges of an alltoallv: src/coll/direct/alltoallv_direct.c,
 * whose names these are. Rank 0 sends along an edge to rank 1, and along a second one back if BACK
 * is defined. Without it a rank without rows to wait for may be ahead; with it the word rows of an
 * edge may stand for the word ready of the other one. A rank is in operation n as soon as it has
 * finished n - 1; nothing else keeps ranks together, as in a graph. With LIVE no rank dies and none
 * is given up.
 *
 * Claims: words and rows that a rank reads are those of its operation; no wait is for ever while
 * both ranks live; after a death or a time-out the survivor ends.
 *
 * run: RANKS=2 OPS=4
 * run: RANKS=2 OPS=1 BACK
 * run: RANKS=2 OPS=2 BACK LIVE
 * long: RANKS=2 OPS=5
 * long: RANKS=2 OPS=2 BACK
 * long: RANKS=2 OPS=3 BACK LIVE
 * fails with RANKS=2 OPS=5: ONE_BANK WORD_FIRST ARRIVED_FIRST EARLY_ROWS EARLY_READY
 * hangs with RANKS=2 OPS=5: NO_GRANT
 * hangs with RANKS=2 OPS=1 BACK LIVE: NO_READY
 */
#define CELLS 8
#include "memory.pml"

#ifdef FAULT_ONE_BANK
#define BANK(n) 0
#else
#define BANK(n) ((n) & 1)
#endif

/* What the two ranks of an edge write: the receiver ready[2] and granted.grant, the sender
 * rows[2] and a row in the receive buffer. */
#define READY(n) BANK(n)
#define GRANT 2
#define ROWS(n) (3 + BANK(n))
#define ROW 5

/* The numbers of the words, by the sender of the edge. */
byte ready[2 * RANKS], granted[RANKS], rows[2 * RANKS], arrived[RANKS];
#define AT(sender, n) (2 * (sender) + BANK(n))

/* What goes along the edge from a rank in an operation: rows with their word; rows by a grant; rows
 * by a grant that is still in force. The first rank that begins the operation chooses. */
#define UNKNOWN 0
#define CARRIED 1
#define COUNTED 2
#define STORED 3
byte kinds[RANKS * (OPS + 2)];
#define KIND(sender) kinds[(sender) * (OPS + 2) + n]

inline choose(sender)
{
    if
    :: KIND(sender) = CARRIED
    :: KIND(sender) = COUNTED
    :: KIND(sender) = STORED
    fi
}

inline choose_kind()
{
    atomic {
        if
        :: KIND(0) == UNKNOWN ->
            choose(0);
#ifdef BACK
            choose(1)
#endif
        :: else
        fi
    }
}

#ifdef FAULT_WORD_FIRST
#define POST(cell, number) post_relaxed(me, number, n); store(me, cell, n)
#else
#define POST(cell, number) store(me, cell, n); post(me, number, n)
#endif

#ifdef BACK
#define SENDS 1
#define RECEIVES 1
#else
#define SENDS (me == 0)
#define RECEIVES (me == 1)
#endif

/* rows_tell_ready: the word that a rank posts first on the edge back says that it is ready */
#if defined(BACK) && defined(FAULT_NO_READY) /* so does one that it posts later */
#define ROWS_TELL_READY true
#elif defined(BACK)
#define ROWS_TELL_READY (KIND(me) != STORED)
#else
#define ROWS_TELL_READY false
#endif
/* is_ready, by a word on the edge back, from a rank */
#ifdef BACK
#define ROWS_TOLD(receiver) (rows[AT(receiver, n)] == n)
#else
#define ROWS_TOLD(receiver) false
#endif

/* post_ready, of the edge from a rank */
inline post_ready(other)
{
    if
    :: RECEIVES && !ROWS_TELL_READY -> POST(READY(n), ready[AT(other, n)])
    :: else
    fi
}

/* await_ready */
#define AWAIT_READY(receiver)                                                                     \
    AWAIT(ready[AT(me, n)] == n || ROWS_TOLD(receiver));                                           \
    if                                                                                             \
    :: ready[AT(me, n)] == n -> assert(memory[CELL(receiver, READY(n))] == n)                      \
    :: else -> assert(memory[CELL(receiver, ROWS(n))] == n)                                        \
    fi
/* post_rows */
#define POST_ROWS POST(ROWS(n), rows[AT(me, n)])
/* await_rows_word, and epx_edges_in_lack before it */
#define AWAIT_ROWS(sender)                                                                        \
    AWAIT(rows[AT(sender, n)] == n); assert(memory[CELL(sender, ROWS(n))] == n)
/* post_grant, await_grant */
#ifdef FAULT_NO_GRANT
#define POST_GRANT(sender) skip
#else
#define POST_GRANT(sender) POST(GRANT, granted[sender])
#endif
#define AWAIT_GRANT(receiver)                                                                     \
    AWAIT(granted[me] == n); assert(memory[CELL(receiver, GRANT)] == n)
/* store_rows */
#define STORE_ROW store(me, ROW, n)
#ifdef FAULT_ARRIVED_FIRST
#define POST_ARRIVED post_relaxed(me, arrived[me], n)
#else
#define POST_ARRIVED post(me, arrived[me], n)
#endif
/* take_rows, and the user who reads the row when the operation is complete */
#define AWAIT_ROW(sender) AWAIT(arrived[sender] == n)
#define READ_ROW(sender) assert(memory[CELL(sender, ROW)] == n)

/* begin of edges_out.c */
inline send_first_word()
{
    if
    :: KIND(me) != STORED -> POST_ROWS
    :: else
    fi
}

/* go_on of edges_out.c, of the edge to the other rank */
inline send(other)
{
#ifndef FAULT_EARLY_ROWS /* rows are stored before the receiver is ready */
    AWAIT_READY(other);
#endif
    if
    :: KIND(me) == COUNTED -> AWAIT_GRANT(other); STORE_ROW; POST_ARRIVED
    :: KIND(me) == STORED -> STORE_ROW; POST_ROWS
    :: else
    fi
}

/* go_on of edges_in.c, of the edge from the other rank */
inline receive(other)
{
    AWAIT_ROWS(other);
    if
    :: KIND(other) == COUNTED -> POST_GRANT(other); AWAIT_ROW(other); READ_ROW(other)
    :: KIND(other) == STORED -> READ_ROW(other)
    :: else
    fi
}

/* The code looks at all edges in turn, so that neither waits for the other: each rank is two
 * processes, which begin and end an operation together. */
byte begun[RANKS], sent[RANKS];

proctype sender(byte me, other)
{
    byte n = 1, i;

    {
        do
        :: n > OPS -> break
        :: else ->
            AWAIT(begun[me] >= n);
            send_first_word();
            send(other);
            sent[me] = n;
            n++
        od
    } unless { dead == me };
over:
    skip
}

proctype receiver(byte me, other)
{
    byte n = 1, i;

    {
#ifdef FAULT_EARLY_READY
        post_ready(other);
#endif
        do
        :: n > OPS -> break
        :: else ->
            choose_kind();
#ifndef FAULT_EARLY_READY /* else ready words are posted before the last operation's rows are
                             taken */
            post_ready(other);
#endif
            begun[me] = n;
#ifdef FAULT_EARLY_READY
            n++;
            post_ready(other);
            n--;
#endif
            if
            :: RECEIVES -> receive(other)
            :: else
            fi;
            if
            :: SENDS -> AWAIT(sent[me] >= n)
            :: else
            fi;
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
    atomic {
        run receiver(0, 1);
        run receiver(1, 0);
        run sender(0, 1);
#ifdef BACK
        run sender(1, 0);
#endif
#ifndef LIVE
        run fate()
#endif
    }
}

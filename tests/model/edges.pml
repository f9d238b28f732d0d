/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * edges.pml - the words and rows of the edges of an alltoallv: src/coll/direct/alltoallv_direct.c,
 * whose names these are. Rank 0 sends along an edge to rank 1, and along a second one back if BACK
 * is defined, so that a rank without rows to wait for may be ahead. A rank is in operation n as
 * soon as it has finished n - 1; nothing else keeps ranks together, as in a graph.
 *
 * Claims: words and rows that a rank reads are those of its operation; no wait is for ever while
 * both ranks live; after a death or a time-out the survivor ends.
 *
 * run: RANKS=2 OPS=4
 * run: RANKS=2 OPS=2 BACK
 * long: RANKS=2 OPS=5
 * long: RANKS=2 OPS=3 BACK
 * fails with RANKS=2 OPS=5: ONE_BANK WORD_FIRST ARRIVED_FIRST EARLY_ROWS EARLY_READY
 * hangs with RANKS=2 OPS=5: NO_GRANT
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

/* What goes along the edges in an operation, the same on both ranks: rows with their word; rows by
 * a grant; rows by a grant that is still in force. The first rank that begins it chooses. */
#define UNKNOWN 0
#define CARRIED 1
#define COUNTED 2
#define STORED 3
byte kind[OPS + 2];

inline choose_kind()
{
    atomic {
        if
        :: kind[n] == UNKNOWN ->
            if
            :: kind[n] = CARRIED
            :: kind[n] = COUNTED
            :: kind[n] = STORED
            fi
        :: else
        fi
    }
}

#ifdef FAULT_WORD_FIRST
#define POST(cell, number) post_relaxed(me, number, n); store(me, cell, n)
#else
#define POST(cell, number) store(me, cell, n); post(me, number, n)
#endif

/* post_ready, of the edge from a rank */
#define POST_READY(sender) POST(READY(n), ready[AT(sender, n)])
/* await_ready */
#define AWAIT_READY(receiver)                                                                     \
    AWAIT(ready[AT(me, n)] == n); assert(memory[CELL(receiver, READY(n))] == n)
/* post_rows */
#define POST_ROWS POST(ROWS(n), rows[AT(me, n)])
/* await_rows_word, and words_lack before it */
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

/* post_first_words of a sender */
inline send_first_word()
{
    if
    :: kind[n] != STORED -> POST_ROWS
    :: else
    fi
}

/* send_on, of the edge to the other rank */
inline send(other)
{
#ifndef FAULT_EARLY_ROWS /* rows are stored before the receiver is ready */
    AWAIT_READY(other);
#endif
    if
    :: kind[n] == COUNTED -> AWAIT_GRANT(other); STORE_ROW; POST_ARRIVED
    :: kind[n] == STORED -> STORE_ROW; POST_ROWS
    :: else
    fi
}

/* receive_on, of the edge from the other rank */
inline receive(other)
{
    AWAIT_ROWS(other);
    if
    :: kind[n] == COUNTED -> POST_GRANT(other); AWAIT_ROW(other); READ_ROW(other)
    :: kind[n] == STORED -> READ_ROW(other)
    :: else
    fi
}

#ifdef BACK
#define SENDS 1
#define RECEIVES 1
#else
#define SENDS (me == 0)
#define RECEIVES (me == 1)
#endif

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
        if
        :: RECEIVES -> POST_READY(other)
        :: else
        fi;
#endif
        do
        :: n > OPS -> break
        :: else ->
            choose_kind();
#ifndef FAULT_EARLY_READY /* else ready words are posted before the last operation's rows are
                             taken */
            if
            :: RECEIVES -> POST_READY(other)
            :: else
            fi;
#endif
            begun[me] = n;
#ifdef FAULT_EARLY_READY
            n++;
            if
            :: RECEIVES -> POST_READY(other)
            :: else
            fi;
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
        run fate()
    }
}

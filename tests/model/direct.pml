/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.pml - ready words, words and rows that ranks store into each other's windows: the protocol
 * of src/coll/direct/direct.c but for its rings, which direct_rings.pml has, and for the words of
 * edges, which edges.pml has. The names are those of
 * the code. A comment before a step names the function that does it, in direct.c if no other file
 * is named.
 *
 * Claims: ready words, words and rows that a rank reads are those of its operation; no wait is for
 * ever while all ranks live; after a death or a time-out every survivor ends.
 *
 * run: RANKS=2 OPS=5
 * run: RANKS=3 OPS=3
 * fails with RANKS=2 OPS=5: ONE_BANK READY_FIRST WORD_FIRST ARRIVED_FIRST EARLY_READY
 * fails with RANKS=3 OPS=3: NO_AGREEMENT
 * hangs with RANKS=2 OPS=5: SILENT_RANK
 */
#define CELLS (RANKS * 4)
#include "memory.pml"

/* What a rank writes for each other: ready[2].words, words[].value, a row in a receive buffer. */
#ifdef FAULT_ONE_BANK
#define BANK(n) 0
#else
#define BANK(n) ((n) & 1)
#endif
#define WORDS(owner, n) ((owner) * 4 + BANK(n))
#define VALUE(owner) ((owner) * 4 + 2)
#define ROW(owner) ((owner) * 4 + 3)

/* Flags, by owner and writer: ready[2].epoch, words[].flag, arrived. */
#define LINE(owner, writer) ((owner) * RANKS + (writer))
#define READY(owner, writer, n) (BANK(n) * RANKS * RANKS + LINE(owner, writer))
byte epoch[2 * RANKS * RANKS];
byte flag[RANKS * RANKS];
byte arrived[RANKS * RANKS];

/* A routing has counts, which are its words, and records, which are its rows; a dispatch has rows
 * alone. A combine, whose rows go by rings, an alltoallv, whose words and rows go along edges, and
 * an operation that is bound to fail have neither. The first rank that begins an operation chooses
 * for all; nobody needs the choice before the last one any more. */
#define UNKNOWN 0
#define COMBINE 1
#define DISPATCH 2
#define ROUTING 3
byte verb[OPS + 2];

inline choose_verb()
{
    atomic {
        if
        :: verb[n] == UNKNOWN ->
            if
            :: verb[n] = COMBINE
            :: verb[n] = DISPATCH
#if RANKS == 2 /* or there were too many states */
            :: verb[n] = ROUTING
#endif
            fi;
            if
            :: n > 3 -> verb[n - 3] = UNKNOWN
            :: else
            fi
        :: else
        fi
    }
}

/* post_ready */
#ifdef FAULT_READY_FIRST
#define POST_READY(r) post_relaxed(me, epoch[READY(r, me, n)], n); store(me, WORDS(r, n), n)
#else
#define POST_READY(r) store(me, WORDS(r, n), n); post(me, epoch[READY(r, me, n)], n)
#endif
#define POST_NEXT_READY(r)                                                                        \
    store(me, WORDS(r, n + 1), n + 1); post(me, epoch[READY(r, me, n + 1)], n + 1)
/* ready_lacks: what its last pass reads, when all have posted, counts */
#define AWAIT_READY(r) AWAIT(epoch[READY(me, r, n)] >= n)
#define READ_READY(r) assert(memory[CELL(r, WORDS(me, n))] == n)

/* epx_direct_post_counted, by store_counts (routing_direct.c) */
#ifdef FAULT_WORD_FIRST
#define POST_WORD(r) post_relaxed(me, flag[LINE(r, me)], n); store(me, VALUE(r), n)
#else
#define POST_WORD(r) store(me, VALUE(r), n); post(me, flag[LINE(r, me)], n)
#endif
/* epx_direct_counted, by counts_lack there */
#define READ_WORD(r) AWAIT(flag[LINE(me, r)] >= n); assert(memory[CELL(r, VALUE(me))] == n)

/* store_records (routing_direct.c), store_token (dispatch_direct.c) */
#define STORE_ROW(r) store(me, ROW(r), n)
/* epx_direct_post_arrival */
#ifdef FAULT_ARRIVED_FIRST
#define POST_ARRIVAL(r) post_relaxed(me, arrived[LINE(r, me)], n)
#elif defined(FAULT_SILENT_RANK) /* a rank without rows posts no arrival */
#define POST_ARRIVAL(r)                                                                           \
    if :: me > 0 -> post(me, arrived[LINE(r, me)], n) :: else fi
#else
#define POST_ARRIVAL(r) post(me, arrived[LINE(r, me)], n)
#endif
/* epx_direct_arrived, by records_lack (routing_direct.c), spread_rows (dispatch_direct.c) */
#define AWAIT_ROW(r) AWAIT(arrived[LINE(me, r)] >= n)
#define READ_ROW(r) assert(memory[CELL(r, ROW(me))] == n)

RANK(me)
{
    byte n = 1, i;

    {
#ifdef FAULT_EARLY_READY /* an operation's ready words are posted before the last one's rows are
                            taken */
        EACH_RANK(POST_READY);
#endif
        do
        :: n > OPS -> break
        :: else ->
            choose_verb();
#ifndef FAULT_EARLY_READY
            EACH_RANK(POST_READY);
#endif
#ifdef FAULT_NO_AGREEMENT /* a rank goes on when one other rank is ready */
            AWAIT_READY(first);
            READ_READY(first);
#else
            EACH_RANK(AWAIT_READY);
            BURST { EACH_RANK(READ_READY) };
#endif
            if
            :: verb[n] == ROUTING -> EACH_RANK(POST_WORD); EACH_RANK(READ_WORD)
            :: else
            fi;
            if
            :: verb[n] != COMBINE ->
#ifdef FAULT_ARRIVED_FIRST
                EACH_RANK(POST_ARRIVAL);
                EACH_RANK(STORE_ROW);
#else
                BURST { EACH_RANK(STORE_ROW) };
                EACH_RANK(POST_ARRIVAL);
#endif
            :: else
            fi;
#ifdef FAULT_EARLY_READY
            EACH_RANK(POST_NEXT_READY);
#endif
            /* the rows are taken, and read by the user after epx_request_complete
             * (src/core/request.c) */
            if
            :: verb[n] != COMBINE -> EACH_RANK(AWAIT_ROW); BURST { EACH_RANK(READ_ROW) }
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
        START_RANKS;
        run fate()
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copies.pml - how blocks that wait for an exchange make the copies that the proxy asks for: the
 * protocol of src/kernels/copy_queues.h, in src/kernels/wires/copies.cuh and
 * src/transport/cuda/asked_copies.c. The names are those of the code. A comment before a step names
 * the function that does it, and its file.
 *
 * One rank: the thread of the proxy, and two blocks, the first of which looks into the host's
 * memory. Each kernel waits for one exchange, for which the proxy asks for COPIES copies of two
 * parts each, in one queue. The writers of memory.pml are the proxy and the blocks.
 *
 * Claims: every part is made once, of the copy that was asked for; the proxy finds a copy made only
 * when all its parts are; a kernel ends only when all copies of its exchange are made; and all
 * exchanges end.
 *
 * run: EXCHANGES=2 COPIES=2 SLOTS=2
 * run: EXCHANGES=1 COPIES=3 SLOTS=2
 * run: EXCHANGES=3 COPIES=1 SLOTS=1
 * fails with EXCHANGES=2 COPIES=2 SLOTS=2: NO_CAS ADD_RELAXED OVER_FIRST ASK_RELAXED
 * fails with EXCHANGES=1 COPIES=3 SLOTS=2: RESET_LAST
 * hangs with EXCHANGES=1 COPIES=3 SLOTS=2: NO_ROOM
 */
#define RANKS 2
#define WRITERS 3
#define PROXY 0
#define ALL_COPIES (EXCHANGES * COPIES)
#define PARTS 2
#define SLOT(n) ((n) % SLOTS)
#define MADE_PART(n, part) (SLOTS + (n) * PARTS + (part)) /* what the block has copied */
#define CELLS (SLOTS + ALL_COPIES * PARTS)
#include "memory.pml"

byte asked, over;           /* pinned memory */
byte made[SLOTS];           /* there, in the slots: copy + 1 */
byte seen_asked, seen_over; /* in the GPU's memory, as all that follows */
byte claimed;               /* copy * PARTS + part */
byte parts_made[SLOTS];
byte times_made[ALL_COPIES * PARTS]; /* by any block; no word of the code */
byte posted;                /* the exchange for which the kernel under way waits */
byte ended;                 /* blocks of the kernel under way that have ended */

#define IS_THERE(n, part)                                                                          \
    (memory[CELL(1, MADE_PART(n, part))] == (n) + 1 ||                                             \
     memory[CELL(2, MADE_PART(n, part))] == (n) + 1)

proctype proxy()
{
    byte exchange = 1, n, end, found, i;

    do
    :: exchange > EXCHANGES -> break
    :: else ->
        posted >= exchange; /* epx_ring_look (src/kernels/ring.h) */
        end = n + COPIES;
        do
        :: n == end -> break
        :: else ->
            /* epx_copies_ask (asked_copies.c) */
#ifndef FAULT_NO_ROOM
            n < SLOTS || made[SLOT(n)] > n - SLOTS;
#endif
            store(PROXY, SLOT(n), n + 1);
#ifdef FAULT_ASK_RELAXED
            post_relaxed(PROXY, asked, n + 1);
#else
            post(PROXY, asked, n + 1);
#endif
            n++
        od;
#ifdef FAULT_OVER_FIRST
        post(PROXY, over, exchange);
#endif
        /* epx_copies_made there; a slot that was used again tells of the older copy too */
        found = end - COPIES;
        do
        :: found == end -> break
        :: found < end && made[SLOT(found)] > found ->
            assert(IS_THERE(found, 0) && IS_THERE(found, 1));
            found++
        od;
        post(PROXY, over, exchange); /* epx_copies_end there */
        exchange++
    od
}

/* show_what_is_asked (copies.cuh) */
inline show_what_is_asked()
{
    atomic {
        new_over = over;
        new_asked = asked
    }
    seen_asked = new_asked;
    seen_over = new_over
}

/* copy_part and end_part (copies.cuh) */
inline make_part()
{
    times_made[word]++;
    assert(times_made[word] == 1);
    store(me, MADE_PART(n, word % PARTS), n + 1);
    d_step {
#ifdef FAULT_ADD_RELAXED
        parts_made[SLOT(n)]++;
#else
        post(me, parts_made[SLOT(n)], parts_made[SLOT(n)] + 1);
#endif
        sum = parts_made[SLOT(n)]
    }
    if
    :: sum < PARTS
    :: else ->
#ifdef FAULT_RESET_LAST
        post(me, made[SLOT(n)], n + 1);
        parts_made[SLOT(n)] = 0
#else
        parts_made[SLOT(n)] = 0;
        post(me, made[SLOT(n)], n + 1)
#endif
    fi
}

/* copy_until_over (copies.cuh) */
proctype block(byte me)
{
    byte kernel = 1, word, n, slot, sum, new_asked, new_over, i;
    bool mine;

    do
    :: kernel > EXCHANGES -> break
    :: else ->
        if
        :: me == 1 -> posted = kernel
        :: me != 1 -> posted >= kernel
        fi;
        do
        :: me == 1 && (over != seen_over || asked != seen_asked) -> show_what_is_asked()
        :: claimed / PARTS < seen_asked ->
            /* claim_part (copies.cuh) */
            word = claimed;
            n = word / PARTS;
            if
            :: n >= seen_asked -> goto again
            :: else
            fi;
            slot = memory[CELL(PROXY, SLOT(n))];
#ifdef FAULT_NO_CAS
            claimed = word + 1;
            mine = true;
#else
            atomic {
                mine = claimed == word;
                if
                :: mine -> claimed = word + 1
                :: else
                fi
            }
#endif
            if
            :: mine ->
                assert(slot == n + 1);
                make_part()
            :: !mine
            fi;
again:
            skip
        :: seen_over >= kernel && claimed / PARTS >= seen_asked -> break
        od;
        for (n : 0 .. kernel * COPIES - 1) {
            assert(IS_THERE(n, 0) && IS_THERE(n, 1))
        }
        /* the next kernel starts when all blocks of this one have ended */
        ended++;
        ended >= 2 * kernel;
        kernel++
    od
}

init {
    if
    :: lands_late = true
    :: skip
    fi;
    atomic {
        run proxy(); run block(1); run block(2)
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct_rings.pml - the rings of src/coll/direct/direct.c, of which a rank has one from every
 * other: rows of a dispatch or alltoallv, sums of a combine. The names are those of the code. A
 * comment before a step names the function that does it, in direct.c if no other file is named.
 *
 * Claims: a slot that is read holds the row that was meant, though slots have another length in the
 * next operation; heads = tails at the end of an operation; ranks that push and pop never wait for
 * each other for ever; after a death or a time-out every survivor ends.
 *
 * RING is the bytes of a ring, ROWS how many rows go into each in an operation.
 *
 * run: RANKS=2 OPS=4 RING=4 ROWS=3 STRIDE
 * run: RANKS=3 OPS=3 RING=2 ROWS=2
 * fails with RANKS=2 OPS=4 RING=4 ROWS=3 STRIDE: HEAD_FIRST TAIL_FIRST SLOT_TOO_MANY NO_READY
 * hangs with RANKS=2 OPS=4 RING=4 ROWS=3 STRIDE: EQUAL BLOCKING_PUSH
 */
#define CELLS (RANKS * RING)
#include "memory.pml"

#define LINE(owner, writer) ((owner) * RANKS + (writer))
byte epoch[RANKS * RANKS]; /* direct.pml has the rest of ready words */
byte heads[RANKS * RANKS];
byte tails[RANKS * RANKS];

/* epx_direct_begin: every other operation has slots of twice the bytes. */
#define SLOT_BYTES(n) (1 + (n) % 2)
#define NUM_SLOTS(n) (RING / SLOT_BYTES(n))
/* Combines among them, as a home then waits for several rings at once; three ranks do nothing else,
 * for in other verbs each ring is on its own. */
#if RANKS == 2
#define IS_COMBINE(n) ((n) % 4 >= 2)
#else
#define IS_COMBINE(n) true
#endif

/* Values of the bytes of a row: its number since the communicator was made, from 1. */
#define PLACE(counted) ((((counted) - ROWS * (n - 1)) % NUM_SLOTS(n)) * SLOT_BYTES(n))

inline fill_slot(r)
{
    d_step {
        i = 0;
        do
        :: i < SLOT_BYTES(n) -> store(me, r * RING + PLACE(pushed[r]) + i, pushed[r] + 1); i++
        :: else -> break
        od;
        i = 0
    }
}

inline read_slot(r)
{
    d_step {
        i = 0;
        do
        :: i < SLOT_BYTES(n) ->
            assert(memory[CELL(r, me * RING + PLACE(popped[r]) + i)] == popped[r] + 1);
            i++
        :: else -> break
        od;
        i = 0
    }
}

/* epx_ring_claim finds a slot */
#ifdef FAULT_SLOT_TOO_MANY
#define CAN_CLAIM(r) (pushed[r] - tails[LINE(me, r)] <= NUM_SLOTS(n))
#else
#define CAN_CLAIM(r) (pushed[r] - tails[LINE(me, r)] < NUM_SLOTS(n))
#endif
#define ALL_PUSHED(r) (pushed[r] == ROWS * n)
#define ALL_POPPED(r) (popped[r] == ROWS * n)
#define CAN_PUSH(r) (!ALL_PUSHED(r) && CAN_CLAIM(r))
/* epx_ring_peek finds a slot */
#ifdef FAULT_EQUAL
#define CAN_POP(r) (heads[LINE(me, r)] == popped[r] + 1)
#else
#define CAN_POP(r) (heads[LINE(me, r)] != popped[r])
#endif

/* EPX_DIRECT_STRIDE may end a burst of pushes or pops before the last that is possible. */
#ifdef STRIDE
#define STOPS(more) true
#else
#define STOPS(more) !(more)
#endif

/* push_rows (dispatch_direct.c, edges_out.c), push_sums (combine_direct.c): some slots, then
 * epx_ring_publish */
inline push(r)
{
#ifdef FAULT_HEAD_FIRST
    post_relaxed(me, heads[LINE(r, me)], pushed[r] + 1);
    fill_slot(r);
    pushed[r]++
#else
    do
    :: CAN_PUSH(r) -> fill_slot(r); pushed[r]++
    :: STOPS(CAN_PUSH(r)) -> break
    od;
    post(me, heads[LINE(r, me)], pushed[r])
#endif
}

/* pop_rows (dispatch_direct.c, edges_in.c): some slots, then epx_ring_release */
inline pop(r)
{
#ifdef FAULT_TAIL_FIRST
    post(me, tails[LINE(r, me)], popped[r] + 1);
    read_slot(r);
    popped[r]++
#else
    do
    :: CAN_POP(r) -> read_slot(r); popped[r]++
    :: STOPS(CAN_POP(r)) -> break
    od;
    post(me, tails[LINE(r, me)], popped[r])
#endif
}

/* sum_tokens (combine_direct.c): the sums of a token from all ranks, then epx_ring_release */
#define READ_SUM(r) read_slot(r); popped[r]++
#define RELEASE(r) post(me, tails[LINE(r, me)], popped[r])
#if RANKS == 2
#define SUMS_ARE_THERE CAN_POP(first)
#define ALL_DONE (ALL_PUSHED(first) && ALL_POPPED(first))
#define CAN_MOVE (CAN_PUSH(first) || CAN_POP(first))
#else
#define SUMS_ARE_THERE (CAN_POP(first) && CAN_POP(second))
#define ALL_DONE (ALL_PUSHED(first) && ALL_POPPED(first) &&                                        \
                  ALL_PUSHED(second) && ALL_POPPED(second))
#define CAN_MOVE (CAN_PUSH(first) || CAN_PUSH(second) ||                                           \
                  (IS_COMBINE(n) && SUMS_ARE_THERE) ||                                             \
                  (!IS_COMBINE(n) && (CAN_POP(first) || CAN_POP(second))))
#endif

#define TRY_PUSH(r) BURST { if :: CAN_PUSH(r) -> push(r) :: else fi }
#define TRY_POP(r) BURST { if :: CAN_POP(r) -> pop(r) :: else fi }
#define POST_READY(r) post(me, epoch[LINE(r, me)], n)
#define AWAIT_READY(r) AWAIT(epoch[LINE(me, r)] >= n)
#define HEADS_ARE_TAILS(r) assert(heads[LINE(me, r)] == popped[r] && popped[r] == ROWS * n)

RANK(me)
{
    byte n = 1, i, pushed[RANKS], popped[RANKS];

    {
        do
        :: n > OPS -> break
        :: else ->
            /* epx_direct_handshake */
            EACH_RANK(POST_READY);
#ifndef FAULT_NO_READY
            EACH_RANK(AWAIT_READY);
#endif
#ifdef FAULT_BLOCKING_PUSH /* all rows are pushed before any is popped */
#define PUSH_ALL(r) do :: ALL_PUSHED(r) -> break :: else -> AWAIT(CAN_PUSH(r)); push(r) od
            EACH_RANK(PUSH_ALL);
#endif
            /* move (dispatch_direct.c, combine_direct.c, alltoallv_direct.c) */
            do
            :: ALL_DONE -> break
            :: else ->
                AWAIT(CAN_MOVE);
                EACH_RANK(TRY_PUSH);
                if
                :: !IS_COMBINE(n) -> EACH_RANK(TRY_POP)
                :: IS_COMBINE(n) && SUMS_ARE_THERE ->
                    BURST { EACH_RANK(READ_SUM); EACH_RANK(RELEASE) }
                :: else
                fi
            od;
            EACH_RANK(HEADS_ARE_TAILS);
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

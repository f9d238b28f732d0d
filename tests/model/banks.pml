/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * banks.pml - small operations between kernels of different ranks: the protocol of
 * src/kernels/wires/banks.cuh, and of packets.cuh there. device.pml has the other
 * operations, of which nothing but the ready words is here. The names are those of the code. A
 * comment before a step names the function that does it, in banks.cuh if no other file is named.
 *
 * An operation is a kernel of two blocks, one that stores and one that takes. In some operations
 * rows go to all ranks, and ids with them; in some only rows, from rank 0; some are not small; in
 * some the ranks disagree, and rank 0 stores rows, packets and ids, and waits for ids, before it
 * knows. In some rows travel in packets, which say themselves of which operation they are: a packet
 * is a word that is stored and loaded at once. In some a block that stores waits before that for
 * weights, which travel as ids do, and for the verdict before these.
 *
 * Claims: a row that a block takes is that of its operation; no wait is for ever while all ranks
 * live; after a death or a time-out every kernel of the survivors ends.
 *
 * run: RANKS=2 OPS=2
 * long: RANKS=2 OPS=3
 * long: RANKS=3 OPS=3
 * fails with RANKS=2 OPS=3: ONE_BANK FLAG_FIRST NO_READY EARLY_NEXT
 * hangs with RANKS=2 OPS=2: NO_VERDICT NO_LOOK UNASKED
 */
#define CELLS (2 * RANKS)
#include "memory.pml"

#ifdef FAULT_ONE_BANK
#define BANK(n) 0
#else
#define BANK(n) ((n) & 1)
#endif
#define ROW(to, n) (BANK(n) * RANKS + (to))
#define LINE(owner, writer, n) (((n) & 1) * RANKS * RANKS + (owner) * RANKS + (writer))
#define FLAG(owner, writer, n) (BANK(n) * RANKS * RANKS + (owner) * RANKS + (writer))
byte ready[2 * RANKS * RANKS];
byte flag[2 * RANKS * RANKS];
byte id[2 * RANKS * RANKS];
byte packet[2 * RANKS * RANKS];
byte ended[RANKS]; /* blocks of all kernels, so far */

#define ALL_STORE 1
#define ONE_STORES 2
#define NOT_SMALL 3
#define REFUSED 4
#define PACKED 5
#define WEIGHTED 6
byte form[OPS + 2];
/* The operation between two that share a bank may have any form; were it more, or were there deaths
 * among three ranks, there were too many states. */
#define VARIES ((n & 1) == 0)

inline choose_form()
{
    atomic {
        if
        :: form[n] == 0 -> form[n] = ALL_STORE
        :: form[n] == 0 && VARIES -> form[n] = ONE_STORES
#if RANKS == 2
        :: form[n] == 0 && VARIES -> form[n] = NOT_SMALL
        :: form[n] == 0 && VARIES -> form[n] = REFUSED
        :: form[n] == 0 -> form[n] = PACKED
        :: form[n] == 0 && VARIES -> form[n] = WEIGHTED
#endif
        :: else
        fi
    }
}

#if RANKS == 2 /* among three ranks there were too many states */
#define ROUTES(rank) (form[n] == ALL_STORE || ((rank) == 0 && form[n] == REFUSED))
#else
#define ROUTES(rank) false
#endif
#define STORES(rank)                                                                              \
    (form[n] == ALL_STORE || ((rank) == 0 && form[n] != NOT_SMALL && form[n] != PACKED))

#define SENDS_PACKETS(rank) (form[n] == PACKED || ((rank) == 0 && form[n] == REFUSED))

/* post_ready (ready_words.cuh), by block 0 */
#define POST_READY(r) ready[LINE(r, me, n)] = n
/* await_ready (ready_words.cuh) */
#define AWAIT_READY(r) AWAIT(ready[LINE(me, r, n)] >= n)
/* send_ids (src/kernels/routing/small_ids.cuh) */
#define SEND_IDS(r) id[LINE(r, me, n)] = n
/* await_id, beside await_ready: a word of its operation, or the finding that another rank differs,
 * of which none but rank 0 asks */
#define DIFFERS (form[n] == REFUSED && ready[LINE(0, 1, n)] >= n)
#ifdef FAULT_NO_LOOK
#define AWAIT_ID(r) AWAIT(id[LINE(me, r, n)] >= n)
#else
#define AWAIT_ID(r)                                                                               \
    AWAIT(id[LINE(me, r, n)] >= n || DIFFERS);                                                     \
    assert(id[LINE(me, r, n)] == n || DIFFERS)
#endif
/* send_given_weights, await_given_weights (src/kernels/flows/sums/few_sums.cuh) */
#define SEND_WEIGHTS(r) id[LINE(r, me, n)] = n
#define AWAIT_WEIGHTS(r)                                                                          \
    AWAIT(id[LINE(me, r, n)] >= n);                                                                \
    assert(id[LINE(me, r, n)] == n)
#ifdef FAULT_UNASKED /* waits for weights before the verdict */
#define AWAIT_VERDICT(r) skip
#define WEIGHTS_HERE (form[n] == WEIGHTED || (me == 0 && form[n] == REFUSED))
#else
#define AWAIT_VERDICT(r) AWAIT_READY(r)
#define WEIGHTS_HERE (form[n] == WEIGHTED)
#endif
/* send_slice (src/kernels/flows/rows/small_rows.cuh), send_sum_slice (flows/sums/few_sums.cuh) */
#define STORE_ROW(r) store(me, ROW(r, n), n)
/* flag_wire::tell (slice_flags.cuh) */
#ifdef FAULT_FLAG_FIRST
#define RAISE_FLAG(r) post_relaxed(me, flag[FLAG(r, me, n)], n)
#else
#define RAISE_FLAG(r) post(me, flag[FLAG(r, me, n)], n)
#endif
/* store_stripe (packets.cuh) */
#define SEND_PACKET(r) packet[FLAG(r, me, n)] = n
/* await_flag, then take_banked_slice (src/kernels/flows/rows/few_rows.cuh), or sums of rows
 * (src/kernels/flows/sums); take_stripe (packets.cuh): a tag is that of its operation or is not */
#define TAKE_ROW(r)                                                                               \
    if                                                                                             \
    :: form[n] == PACKED -> AWAIT(packet[FLAG(me, r, n)] == n)                                     \
    :: form[n] != PACKED && (STORES(r) || TAKES_ANYHOW) ->                                         \
        AWAIT(flag[FLAG(me, r, n)] >= n);                                                          \
        assert(memory[CELL(r, ROW(me, n))] == n)                                                   \
    :: else                                                                                        \
    fi
#ifdef FAULT_NO_VERDICT /* takes what it would if the ranks agreed */
#define TAKES_ANYHOW (form[n] == REFUSED)
#else
#define TAKES_ANYHOW false
#endif

/* is_last_of_small, end_exchange (protocol.cuh): the next kernel begins when this one has ended */
#ifdef FAULT_EARLY_NEXT /* the next kernel begins when its own block has ended */
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

BLOCK(storing)
{
    byte n = 1, i;

    {
        do
        :: n > OPS -> break
        :: else ->
            choose_form();
            EACH_RANK(POST_READY);
            if
            :: ROUTES(me) -> EACH_RANK(SEND_IDS)
            :: else
            fi;
#if RANKS == 2
            if
            :: WEIGHTS_HERE ->
                EACH_RANK(SEND_WEIGHTS);
                EACH_RANK(AWAIT_VERDICT);
                EACH_RANK(AWAIT_WEIGHTS)
            :: else
            fi;
#endif
            if
            :: STORES(me) ->
                BURST { EACH_RANK(STORE_ROW) };
                EACH_RANK(RAISE_FLAG)
            :: else
            fi;
#if RANKS == 2
            if
            :: SENDS_PACKETS(me) -> EACH_RANK(SEND_PACKET)
            :: else
            fi;
#endif
            AWAIT_END
        od
    } unless { dead == me };
over:
    skip
}

BLOCK(taking)
{
    byte n = 1;

    {
        do
        :: n > OPS -> break
        :: else ->
            choose_form();
            if
            :: ROUTES(me) -> EACH_RANK(AWAIT_ID)
            :: else
            fi;
#ifndef FAULT_NO_READY
            EACH_RANK(AWAIT_READY);
#endif
            if
            :: form[n] != REFUSED || TAKES_ANYHOW -> EACH_RANK(TAKE_ROW)
            :: else
            fi;
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
        START_BLOCKS(storing);
        START_BLOCKS(taking);
#if RANKS == 2
        run fate()
#endif
    }
}

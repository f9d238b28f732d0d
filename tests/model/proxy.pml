/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proxy.pml - how kernels ask the proxy for exchanges of messages, and how that ends: the protocol
 * of src/kernels/ring.h and src/coll/device/staged/proxy.c. The names are those of the code. A
 * comment before a step names the function that does it, and its file.
 *
 * Each rank has a kernel, which stands for all kernels of the communicator as they run one after
 * the other; the thread of the proxy; its stream; and a host, which hears the letters of others.
 *
 * Claims: the proxy takes each exchange as it was posted, in order; a kernel takes what came only
 * when it has come, which an aborted exchange has not; nothing is packed before the last message
 * has left; while all live and nothing fails, all exchanges end; after a death, a time-out or a
 * failure of a proxy every kernel, proxy and stream of the survivors ends, and a kernel that was
 * stopped by a failure finds its text.
 *
 * run: RANKS=2 OPS=3 SLOTS=2
 * run: RANKS=3 OPS=2 SLOTS=2
 * fails with RANKS=2 OPS=3 SLOTS=2: NUMBER_FIRST NO_NUMBER NO_AWAIT RELEASE_FIRST ABORT_FIRST
 * fails with RANKS=2 OPS=3 SLOTS=2: NO_LOOK TEXT_LAST
 * hangs with RANKS=2 OPS=3 SLOTS=2: NO_ABORT
 */
#define CELLS (1 + SLOTS)
#include "memory.pml"

#define STAGE 0 /* what a kernel packs and the stream sends */
#define SLOT(n) (1 + (n) % SLOTS)
#define NUMBER(r, n) ((r) * SLOTS + (n) % SLOTS)
#define LINE(from, to) ((from) * RANKS + (to))

byte number[RANKS * SLOTS];      /* of each slot: posted */
byte queued[RANKS];              /* exchanges that are in the stream */
byte delivered[RANKS * RANKS];   /* the exchange whose message has come, from and to */
byte released[RANKS];
bool stop[RANKS];                /* in the ring */
bool failure[RANKS], failed[RANKS];
bool aborted[RANKS];             /* the transport goes on without messages */
bool stops[RANKS];               /* the communicator is freed */
bool is_finished[RANKS];         /* comm->finished */
bool letter[RANKS];              /* LETTER_END has come here; letter_liveness.c */
bool abort_word[RANKS];          /* in the control window */
bool may_fail;                   /* fate: the proxy of rank 0 may fail at any exchange */
bool may_give_up;                /* fate: the host of rank 0 may give up at any step */

/* is_over (proxy.c) */
#define IS_OVER(r) (stops[r] || is_finished[r])

#define SEND_END(r) letter[r] = true

/* post_exchange (src/kernels/wires/messages.cuh) */
inline post_exchange()
{
#ifdef FAULT_NUMBER_FIRST
    post_relaxed(me, number[NUMBER(me, n)], n);
    store(me, STAGE, n);
    store(me, SLOT(n), n)
#else
    d_step {
        store(me, STAGE, n);
        store(me, SLOT(n), n)
    }
    post(me, number[NUMBER(me, n)], n)
#endif
}

/* epx_message_takes_part (ring.h): of three ranks 0 and 2 have nothing for each other in the first
 * exchange */
#define TAKES_PART(r) (RANKS == 2 || n > 1 || me + r != 2)

#define READ_ROW(r) assert(delivered[LINE(r, me)] >= n || !TAKES_PART(r))

/* The kernel, then the host that finds how it ended. */
RANK(me)
{
    byte n = 1, i;

    {
        do
        :: n > OPS -> stops[me] = true; break /* epx_proxy_free (proxy.c) */
        :: else ->
            post_exchange();
#ifdef FAULT_NO_AWAIT
            if
            :: n == OPS
            :: n < OPS -> goto next
            fi;
#endif
            /* await_release (messages.cuh); the time-out is in keep_waiting (waits.cuh) */
            if
            :: released[me] >= n
            :: stop[me] -> goto gives_up
            :: abort_word[me] -> goto gives_up
            :: late && !(released[me] >= n) -> goto gives_up
            fi;
#ifndef FAULT_NO_LOOK
            /* proxy_stopped there */
            if
            :: stop[me] -> goto gives_up
            :: !stop[me]
            fi;
#endif
            EACH_RANK(READ_ROW);
next:
            n++
        od;
        goto over;
gives_up:
        /* own_reason (src/coll/device/device_liveness.c): the host finds why */
        assert(late || failure[me] || letter[me] || abort_word[me]);
        /* epx_device_note_abort there: epx_comm_finish, then letters */
        atomic {
            is_finished[me] = true;
            EACH_RANK(SEND_END)
        }
    } unless { dead == me };
over:
    skip
}

/* A letter comes: beat (src/coll/device/device_liveness.c), then epx_comm_finish
 * (src/core/health/patience.c). Or the host itself gives up: epx_comm_give_up there, announce. */
proctype host(byte me, first, second)
{
end:
    if
    :: atomic { letter[me] && dead != me -> stop[me] = true; is_finished[me] = true }
    :: atomic { may_give_up && me == 0 -> EACH_RANK(SEND_END); abort_word[me] = true };
        is_finished[me] = true
    fi
}

/* abort_exchanges (proxy.c) */
inline abort_exchanges()
{
#ifdef FAULT_ABORT_FIRST
    aborted[me] = true;
    stop[me] = true
#elif defined(FAULT_NO_ABORT)
    stop[me] = true
#else
    stop[me] = true;
    aborted[me] = true
#endif
}

/* give_up_here (proxy.c) */
inline give_up_here()
{
#ifdef FAULT_TEXT_LAST
    stop[me] = true;
    failure[me] = true
#else
    failure[me] = true;
    failed[me] = true;
    stop[me] = true
#endif
}

/* run: serve, then serve_until_over (proxy.c) */
proctype proxy(byte me)
{
    byte next = 1;

    {
        do
        :: IS_OVER(me) -> break
#ifdef FAULT_NO_NUMBER /* a slot is taken that holds any exchange */
        :: number[NUMBER(me, next)] != 0 && next <= OPS ->
#else
        /* epx_ring_look (ring.h) */
        :: number[NUMBER(me, next)] == next ->
#endif
            assert(memory[CELL(me, SLOT(next))] == next);
            /* move: start of the transport, release behind it, both in the stream */
            if
            :: atomic { queued[me] = next; next++ }
            :: may_fail && me == 0 -> give_up_here(); break
            fi
        od;
        IS_OVER(me);
        if
        :: is_finished[me] -> abort_exchanges()
        :: else
        fi
    } unless { dead == me }
}

#define DELIVER_FROM(r)                                                                           \
    if                                                                                             \
    :: atomic {                                                                                    \
        queued[r] >= n && !aborted[me] && TAKES_PART(r) ->                                         \
        assert(memory[CELL(r, STAGE)] == n);                                                       \
        delivered[LINE(r, me)] = n }                                                               \
    :: aborted[me] || !TAKES_PART(r)                                                               \
    fi
#define AWAIT_DELIVERED(r) (delivered[LINE(me, r)] >= n || aborted[me] || !TAKES_PART(r))

proctype stream(byte me, first, second)
{
    byte n = 1;

    {
        do
        :: queued[me] >= n ->
#ifdef FAULT_RELEASE_FIRST
            released[me] = n;
#endif
            EACH_RANK(DELIVER_FROM);
            EACH_RANK(AWAIT_DELIVERED);
            atomic {
                released[me] = n; /* release (proxy.c) */
                n++
            }
        :: queued[me] < n && IS_OVER(me) && (stops[me] || aborted[me]) -> break
        od
    } unless { dead == me }
}

init {
    if
    :: lands_late = true
    :: skip
    fi;
    atomic {
        START_RANKS;
        run proxy(0); run proxy(1);
#if RANKS == 2
        run host(0, 1, 0); run host(1, 0, 0);
        run stream(0, 1, 0); run stream(1, 0, 0);
#else
        run proxy(2);
        run host(0, 1, 2); run host(1, 0, 2); run host(2, 0, 1);
        run stream(0, 1, 2); run stream(1, 0, 2); run stream(2, 0, 1);
#endif
        if
        :: may_fail = true
#if RANKS == 2 /* or there were too many states */
        :: may_give_up = true
        :: run fate()
#endif
        fi
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * claims.pml - how takers share tasks, senders theirs, and both the multiprocessors:
 * src/kernels/streaming/task_claims.cuh and sender_progress.cuh, src/kernels/protocol/phases.cuh.
 * progress.pml has how a taker knows that a row has come. A comment before a step names the
 * function that does it, in task_claims.cuh if no other file is named.
 *
 * Two GPUs, a rank each, and COMMS communicators, with an operation of each under way, in two
 * kernels: SENDERS blocks that send, and take when they have sent, then one that takes. A block
 * holds one of the SMS multiprocessors from its start to its end; takers start behind all senders.
 * A task is a row: to the other rank, and from it. Senders have a task each by their numbers, and
 * so has the block that takes alone.
 *
 * Claims: no row is sent twice, or taken twice, or before it has come; when the kernels of an
 * operation have ended all its rows were sent and taken; and they all end.
 *
 * run: COMMS=2 SMS=2 TASKS=2 SENDERS=2
 * run: COMMS=1 SMS=1 TASKS=3 SENDERS=1
 * run: COMMS=1 SMS=2 TASKS=4 SENDERS=1
 * run: COMMS=1 SMS=2 TASKS=3 SENDERS=2
 * fails with COMMS=1 SMS=2 TASKS=3 SENDERS=2: NO_ADD TAKE_UNSEEN RESET_FIRST
 * hangs with COMMS=2 SMS=2 TASKS=2 SENDERS=2: ALWAYS_TAKES TOLD_BY_FIRST
 */
#define RANKS 2
#define OP(rank, comm) ((rank) * COMMS + (comm))
#define MINE OP(me, comm)
#define FIRSTS 1 /* tasks that takers have by their numbers */

#ifdef FAULT_TOLD_BY_FIRST
#define TELLS 1
#else
#define TELLS SENDERS
#endif

byte idle[RANKS];             /* multiprocessors of a GPU that no block holds */
byte started[RANKS * COMMS];  /* epx_device_state.begun, .runs, .sent and .taken */
byte runs[RANKS * COMMS];
byte sent[RANKS * COMMS];
byte counter[RANKS * COMMS];
bool begun[RANKS * COMMS];    /* the word that tells of it */
bool told[RANKS * COMMS * TASKS]; /* of a row */
byte times_taken[RANKS * COMMS * TASKS]; /* no word of the code */

#define HAS_COME(task) (told[OP(1 - me, comm) * TASKS + (task)])

#define CLAIM() atomic { task = FIRSTS + counter[MINE]; counter[MINE]++ }

/* The tasks of takers; await_slice (row_takers.cuh), then claim_next */
inline take_all()
{
    do
    :: task >= TASKS -> break
    :: else ->
        atomic {
#ifndef FAULT_TAKE_UNSEEN
            HAS_COME(task);
#endif
            assert(HAS_COME(task));
            assert(times_taken[MINE * TASKS + task] == 0);
            times_taken[MINE * TASKS + task]++;
#ifdef FAULT_NO_ADD
            task = FIRSTS + counter[MINE]
        };
        counter[MINE] = task - FIRSTS + 1
#else
            CLAIM()
        }
#endif
    od
}

proctype sender(byte me, comm, number)
{
    byte task = number;

    atomic {
        idle[me] > 0;
        idle[me]--;
        started[MINE]++; /* begin_to_send (sender_progress.cuh) */
        begun[MINE] = begun[MINE] || started[MINE] == TELLS
    };
    /* send_all (row_movers.cuh), claim_next */
    do
    :: task >= TASKS -> break
    :: else ->
        atomic {
            assert(!told[MINE * TASKS + task]);
            told[MINE * TASKS + task] = true;
            task = SENDERS + runs[MINE];
            runs[MINE]++
        }
    od;
    /* all_have_begun (sender_progress.cuh) */
    if
#ifdef FAULT_ALWAYS_TAKES
    :: true -> CLAIM()
#else
    :: atomic { begun[OP(1 - me, comm)] -> CLAIM() }
    :: atomic { !begun[OP(1 - me, comm)] -> task = TASKS }
#endif
    fi;
    take_all();
    /* end_senders (phases.cuh) */
    atomic { idle[me]++; sent[MINE]++; task = 0 }
}

proctype taker(byte me, comm)
{
    byte task;

    /* launch_phase (phases.cuh) */
    atomic { started[MINE] == SENDERS && idle[me] > 0; idle[me]-- };
    take_all();
    /* is_last_mover (phases.cuh) */
#ifdef FAULT_RESET_FIRST
    runs[MINE] = 0;
    counter[MINE] = 0;
#endif
    atomic {
        sent[MINE] == SENDERS; /* await_senders */
        runs[MINE] = 0;
        counter[MINE] = 0;
        task = 0;
        do
        :: task == TASKS -> break
        :: else ->
            assert(times_taken[MINE * TASKS + task] == 1 && told[MINE * TASKS + task]);
            task++
        od;
        idle[me]++;
        task = 0
    }
}

init {
    atomic {
        byte r, c, b;

        for (r : 0 .. RANKS - 1) {
            idle[r] = SMS;
            for (c : 0 .. COMMS - 1) {
                for (b : 0 .. SENDERS - 1) {
                    run sender(r, c, b)
                }
                run taker(r, c)
            }
        }
    }
}

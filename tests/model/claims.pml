/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * claims.pml - how blocks of takers share tasks, senders theirs, and both the multiprocessors:
 * src/kernels/streaming/task_claims.cuh and src/kernels/protocol/phases.cuh. progress.pml has how a
 * taker knows that a row has come. A comment before a step names the function that does it, in
 * task_claims.cuh if no other file is named.
 *
 * Two GPUs, a rank each, and COMMS communicators, with an operation of each under way, in two
 * kernels: SENDERS blocks that send, then one that takes and one that takes late. A block holds one
 * of the SMS multiprocessors from its start to its end; takers start behind all senders, and late
 * blocks behind those that are not. A task is a row: to the other rank, and from it. Senders have a
 * task each by their numbers, and so has the block that is not late.
 *
 * Claims: no row is sent twice, or taken twice, or before it has come; when the kernels of an
 * operation have ended all its rows were sent and taken; and they all end.
 *
 * run: COMMS=2 SMS=2 TASKS=2 SENDERS=1
 * run: COMMS=1 SMS=1 TASKS=3 SENDERS=1
 * run: COMMS=1 SMS=2 TASKS=4 SENDERS=1
 * run: COMMS=1 SMS=2 TASKS=3 SENDERS=2
 * fails with COMMS=1 SMS=2 TASKS=3 SENDERS=2: NO_CAS TAKE_UNSEEN RESET_FIRST
 * hangs with COMMS=2 SMS=2 TASKS=2 SENDERS=1: LATE_WAITS
 */
#define RANKS 2
#define OP(rank, comm) ((rank) * COMMS + (comm))
#define MINE OP(me, comm)
#define FIRSTS 1 /* tasks that blocks have by their numbers */

byte idle[RANKS];             /* multiprocessors of a GPU that no block holds */
byte started[RANKS * COMMS];  /* senders of an operation that are on a multiprocessor */
bool taking[RANKS * COMMS];   /* its first takers are */
byte runs[RANKS * COMMS];     /* epx_device_state.runs, .sent and .taken */
byte sent[RANKS * COMMS];
byte counter[RANKS * COMMS];
bool told[RANKS * COMMS * TASKS]; /* of a row */
byte times_taken[RANKS * COMMS * TASKS]; /* no word of the code */
byte ended[RANKS * COMMS];   /* blocks of takers */

#define HAS_COME(task) (told[OP(1 - me, comm) * TASKS + (task)])
#define TAKE(task)                                                                                 \
    atomic {                                                                                       \
        assert(HAS_COME(task));                                                                    \
        assert(times_taken[MINE * TASKS + (task)] == 0);                                           \
        times_taken[MINE * TASKS + (task)]++                                                       \
    }

/* is_last_mover (phases.cuh), in the last block of takers */
inline end_taker()
{
    atomic {
        ended[MINE]++;
        last = ended[MINE] == 2
    };
    if
    :: last ->
#ifdef FAULT_RESET_FIRST
        runs[MINE] = 0;
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
            od
        }
    :: else
    fi;
    atomic { idle[me]++; task = 0 }
}

/* send_all (row_movers.cuh) */
proctype sender(byte me, comm, number)
{
    byte task = number;

    atomic { idle[me] > 0; idle[me]--; started[MINE]++ };
    do
    :: task >= TASKS -> break
    :: else ->
        atomic { assert(!told[MINE * TASKS + task]); told[MINE * TASKS + task] = true };
        /* claim_next */
        atomic { task = SENDERS + runs[MINE]; runs[MINE]++ }
    od;
    /* end_senders (phases.cuh) */
    atomic { idle[me]++; sent[MINE]++; task = 0 }
}

/* take_all (row_takers.cuh) */
proctype taker(byte me, comm)
{
    byte task;
    bool last;

    /* launch_phase (phases.cuh) */
    atomic { started[MINE] == SENDERS && idle[me] > 0; idle[me]--; taking[MINE] = true };
    do
    :: task >= TASKS -> break
    :: else ->
        HAS_COME(task); /* await_slice (row_takers.cuh) */
        TAKE(task);
        /* next_task */
        atomic { task = FIRSTS + counter[MINE]; counter[MINE]++ }
    od;
    end_taker()
}

proctype late_taker(byte me, comm)
{
    byte task, seen;
    bool last;

    atomic { taking[MINE] && idle[me] > 0; idle[me]-- };
    do
    :: /* claim_what_is_here */
        atomic { seen = counter[MINE]; task = FIRSTS + seen };
        if
        :: task >= TASKS -> break
        :: else
        fi;
#ifdef FAULT_LATE_WAITS
        HAS_COME(task);
#elif !defined(FAULT_TAKE_UNSEEN)
        if
        :: HAS_COME(task)
        :: else -> break
        fi;
#endif
        /* claim_task */
        if
#ifdef FAULT_NO_CAS
        :: true -> counter[MINE] = seen + 1; TAKE(task)
#else
        :: atomic { counter[MINE] == seen -> counter[MINE]++ }; TAKE(task)
        :: counter[MINE] != seen
#endif
        fi;
        seen = 0
    od;
    seen = 0;
    end_taker()
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
                run taker(r, c);
                run late_taker(r, c)
            }
        }
    }
}

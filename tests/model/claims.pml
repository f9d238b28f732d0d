/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * claims.pml - how blocks of takers share tasks, and multiprocessors with senders:
 * src/kernels/streaming/task_claims.cuh and src/kernels/protocol/phases.cuh. progress.pml has how a
 * taker knows that a row has come. A comment before a step names the function that does it, in
 * task_claims.cuh if no other file is named.
 *
 * Two GPUs, a rank each, and COMMS communicators, with an operation of each under way, in two
 * kernels: a block that sends, then one that takes and one that takes late. A block holds one of
 * the SMS multiprocessors from its start to its end; late blocks start behind those that are not. A
 * task is a row of the other rank. The block that is not late has task 0 by its number.
 *
 * Claims: no task is taken twice, or before its row has come; when the kernels of an operation have
 * ended all its tasks were taken; and they all end.
 *
 * run: COMMS=2 SMS=2 TASKS=2
 * run: COMMS=1 SMS=1 TASKS=3
 * run: COMMS=1 SMS=2 TASKS=5
 * fails with COMMS=1 SMS=2 TASKS=3: NO_CAS TAKE_UNSEEN
 * hangs with COMMS=2 SMS=2 TASKS=2: LATE_WAITS
 */
#define RANKS 2
#define OP(rank, comm) ((rank) * COMMS + (comm))
#define MINE OP(me, comm)
#define FIRSTS 1 /* tasks that blocks have by their numbers */

byte idle[RANKS];           /* multiprocessors of a GPU that no block holds */
byte sent[RANKS * COMMS];   /* rows that the senders of an operation have told of */
bool started[RANKS * COMMS]; /* its senders are on a multiprocessor; its first takers are */
bool taking[RANKS * COMMS];
byte counter[RANKS * COMMS]; /* epx_device_state.taken */
byte times_taken[RANKS * COMMS * TASKS]; /* no word of the code */
byte ended[RANKS * COMMS];   /* blocks of takers */

#define HAS_COME(task) (sent[OP(1 - me, comm)] > (task))
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
        idle[me]++;
        ended[MINE]++;
        if
        :: ended[MINE] == 2 ->
            task = 0;
            do
            :: task == TASKS -> break
            :: else -> assert(times_taken[MINE * TASKS + task] == 1); task++
            od
        :: else
        fi;
        task = 0
    }
}

/* send_all (row_movers.cuh) */
proctype sender(byte me, comm)
{
    atomic { idle[me] > 0; idle[me]--; started[MINE] = true };
    do
    :: sent[MINE] == TASKS -> break
    :: else -> sent[MINE]++
    od;
    idle[me]++
}

/* take_all (row_movers.cuh) */
proctype taker(byte me, comm)
{
    byte task, coming;

    /* launch_phase (phases.cuh) */
    atomic { started[MINE] && idle[me] > 0; idle[me]--; taking[MINE] = true };
    /* first_task */
    atomic { coming = FIRSTS + counter[MINE]; counter[MINE]++ };
    do
    :: task >= TASKS -> break
    :: else ->
        HAS_COME(task); /* await_slice (row_movers.cuh) */
        TAKE(task);
        /* next_task */
        task = coming;
        atomic { coming = FIRSTS + counter[MINE]; counter[MINE]++ }
    od;
    coming = 0;
    end_taker()
}

proctype late_taker(byte me, comm)
{
    byte task, seen;

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
        byte r, c;

        for (r : 0 .. RANKS - 1) {
            idle[r] = SMS;
            for (c : 0 .. COMMS - 1) {
                run sender(r, c);
                run taker(r, c);
                run late_taker(r, c)
            }
        }
    }
}

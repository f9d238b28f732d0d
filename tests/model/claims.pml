/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * claims.pml - how receivers share tasks, senders theirs, and both the multiprocessors:
 * src/kernels/protocol/task_claims.cuh and sender_progress.cuh, src/kernels/protocol/phases.cuh.
 * progress.pml has how a receiver knows that a row has come. A comment before a step names the
 * function that does it, in task_claims.cuh if no other file is named.
 *
 * Two GPUs, a rank each, and COMMS communicators, with OPS operations of each, one behind another,
 * in two kernels each: SENDERS blocks that send, and take when they have sent, then one that takes.
 * A block holds one of the SMS multiprocessors from its start to its end; receivers start behind
 * all senders. A task is a row: to the other rank, and from it. Senders have a task each by their
 * numbers, and so has the block that takes alone. All words are of operation 1 at first. Where
 * DEATHS is 1 rank 1 dies at some step, or when all is over.
 *
 * Claims: no row is sent twice, or taken twice, or before it has come; when the kernels of an
 * operation have ended all its rows were sent and taken, if no rank died; and they all end.
 *
 * long: COMMS=2 SMS=2 TASKS=2 SENDERS=2 OPS=1 DEATHS=0
 * run: COMMS=1 SMS=1 TASKS=3 SENDERS=1 OPS=3 DEATHS=0
 * run: COMMS=1 SMS=2 TASKS=4 SENDERS=1 OPS=1 DEATHS=0
 * run: COMMS=1 SMS=2 TASKS=3 SENDERS=2 OPS=2 DEATHS=0
 * long: COMMS=1 SMS=2 TASKS=3 SENDERS=2 OPS=1 DEATHS=1
 * run: COMMS=1 SMS=2 TASKS=3 SENDERS=1 OPS=3 DEATHS=1
 * fails with COMMS=1 SMS=2 TASKS=3 SENDERS=2 OPS=1 DEATHS=0: NO_ADD TAKE_UNSEEN RESET_FIRST
 * hangs with COMMS=2 SMS=2 TASKS=2 SENDERS=2 OPS=1 DEATHS=0: ALWAYS_TAKES TOLD_BY_FIRST
 * hangs with COMMS=2 SMS=2 TASKS=2 SENDERS=2 OPS=1 DEATHS=0: TOLD_LONG_AGO
 * hangs with COMMS=1 SMS=2 TASKS=3 SENDERS=2 OPS=1 DEATHS=1: NO_CLOCK
 */
#define RANKS 2
#define OP(rank, comm) ((rank) * COMMS + (comm))
#define MINE OP(me, comm)
#define OTHERS OP(1 - me, comm)
#define FIRSTS 1 /* tasks that receivers have by their numbers */

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
/* Numbers of operations: the last that has ended (epx_device_state.epoch, of which the ready words
 * tell), the last whose senders have all begun, and the last that told of a row, and took it. */
byte ended[RANKS * COMMS] = 1;
byte begun[RANKS * COMMS] = 1;
byte told[RANKS * COMMS * TASKS] = 1;
byte taken[RANKS * COMMS * TASKS] = 1; /* no word of the code */
bool gone;                    /* rank 1 is */
bool aborted;                 /* rank 0: a clock of one of its blocks has run out */

#define HAS_COME (told[OTHERS * TASKS + task] == op)
#define LAST_OP (OPS + 1)
/* An operation starts behind the one before, and behind the ready word of the other rank, which a
 * kernel of its own waits for. */
#define MAY_BEGIN (ended[MINE] == op - 1 && ended[OTHERS] >= op - 1 && !CLOCK_RAN_OUT)

/* keep_waiting (src/kernels/protocol/waits.cuh). What an operation has done does not count then. */
#if DEATHS
#define CLOCK_RAN_OUT (me == 0 && aborted)
#define CLOCK_RUNS_OUT (me == 0 && (gone || aborted))
#define UNLESS_GONE unless { me == 1 && gone }
#else
#define CLOCK_RAN_OUT false
#define CLOCK_RUNS_OUT false
#define UNLESS_GONE
#endif
#ifdef FAULT_NO_CLOCK
#define GIVES_UP false
#else
#define GIVES_UP CLOCK_RUNS_OUT
#endif

#define ALL_HAVE_SENT (sent[MINE] == SENDERS || CLOCK_RAN_OUT)

#ifdef FAULT_TAKE_UNSEEN
#define MAY_TAKE true
#else
#define MAY_TAKE HAS_COME
#endif

#ifdef FAULT_ALWAYS_TAKES
#define MAY_WAIT true
#elif defined(FAULT_TOLD_LONG_AGO)
#define MAY_WAIT (begun[OTHERS] > 0)
#else
#define MAY_WAIT (begun[OTHERS] == op)
#endif

inline claim()
{
    task = FIRSTS + counter[MINE];
    counter[MINE]++
}

/* The tasks of receivers: await_slice (row_receivers.cuh), then claim_next */
inline take_all()
{
    do
    :: task >= TASKS -> break
    :: else ->
        atomic {
            MAY_TAKE || GIVES_UP;
            if
            :: MAY_TAKE ->
                assert(HAS_COME);
                assert(taken[MINE * TASKS + task] == op - 1 || CLOCK_RAN_OUT);
                taken[MINE * TASKS + task] = op;
#ifdef FAULT_NO_ADD
                task = FIRSTS + counter[MINE]
#else
                claim()
#endif
            :: else ->
                aborted = true;
                task = TASKS
            fi
        }
#ifdef FAULT_NO_ADD
        counter[MINE] = task - FIRSTS + 1
#endif
    od
}

proctype sender(byte me, comm, number)
{
    byte task, op = 2;

    {
        do
        :: op > LAST_OP -> break
        :: else ->
            atomic {
                MAY_BEGIN && idle[me] > 0 || CLOCK_RUNS_OUT;
                if
                :: CLOCK_RUNS_OUT ->
                    aborted = true;
                    op = LAST_OP + 1;
                    break
                :: else
                fi;
                idle[me]--;
                task = number;
                started[MINE]++; /* begin_to_send (sender_progress.cuh) */
                begun[MINE] = (started[MINE] == TELLS -> op : begun[MINE])
            };
            /* send_all (row_movers.cuh), claim_next */
            do
            :: task >= TASKS -> break
            :: else ->
                atomic {
                    assert(told[MINE * TASKS + task] == op - 1 || CLOCK_RAN_OUT);
                    told[MINE * TASKS + task] = op;
                    task = SENDERS + runs[MINE];
                    runs[MINE]++
                }
            od;
            /* all_have_begun (sender_progress.cuh) */
            atomic {
                if
                :: MAY_WAIT -> claim()
                :: else -> task = TASKS
                fi
            };
            take_all();
            /* end_senders (phases.cuh) */
            atomic { idle[me]++; sent[MINE]++; task = 0; op++ }
        od
    } UNLESS_GONE
}

proctype receiver(byte me, comm)
{
    byte task, op = 2;

    {
        do
        :: op > LAST_OP -> break
        :: else ->
            /* launch_phase (phases.cuh) */
            atomic {
                started[MINE] == SENDERS && !CLOCK_RAN_OUT && idle[me] > 0 || CLOCK_RUNS_OUT;
                if
                :: CLOCK_RUNS_OUT ->
                    aborted = true;
                    op = LAST_OP + 1;
                    break
                :: else
                fi;
                idle[me]--
            };
            take_all();
            /* is_last_mover (phases.cuh) */
#ifdef FAULT_RESET_FIRST
            runs[MINE] = 0;
            counter[MINE] = 0;
#endif
            atomic {
                ALL_HAVE_SENT; /* await_senders (phases.cuh) */
                task = 0;
                do
                :: task == TASKS -> break
                :: else ->
                    assert(CLOCK_RAN_OUT ||
                           taken[MINE * TASKS + task] == op && told[MINE * TASKS + task] == op);
                    task++
                od;
                started[MINE] = 0;
                runs[MINE] = 0;
                sent[MINE] = 0;
                counter[MINE] = 0;
                ended[MINE] = op;
                idle[me]++;
                task = 0;
                op++
            }
        od
    } UNLESS_GONE
}

proctype death()
{
    gone = true
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
                run receiver(r, c)
            }
        }
#if DEATHS
        run death()
#endif
    }
}

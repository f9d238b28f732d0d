/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_end.pml - the end of a communicator: epx_comm_give_up and epx_comm_finish in
 * src/core/health/comm_end.c over the four ways by which ranks learn of it. The names are those of
 * the code. A comment before a step names the function that does it, and its file.
 *
 *   SHM       the author and its message in src/transport/shm/transport_shm.c
 *   DEVICE    the abort word of src/kernels/protocol/waits.cuh
 *   LETTERS   src/transport/mpi/letter_liveness.c and src/transport/ucx/ucx_liveness.c
 *   SOCKETS   the same letters where src/control/control_sockets.c carries them: a rank that dies,
 *             or frees the communicator, closes its sockets, behind what it has sent
 *
 * Each rank has two operations in flight. Either the clock of rank 0 alone runs, and nobody dies;
 * or all clocks do, and a rank may die at any step. A clock may run out at any step.
 *
 * Claims: the operations of every survivor complete, all with one message, the reason of a rank
 * that gave up. But where ranks write letters, two that give up before they have heard of each
 * other keep their own reasons: there it is one message where one clock runs. Over sockets a rank
 * may also die without a clock, at any step: every survivor ends and names it, not one that gave up
 * because of it.
 *
 * run: RANKS=2 SHM
 * run: RANKS=3 SHM
 * run: RANKS=2 DEVICE
 * run: RANKS=3 DEVICE
 * run: RANKS=2 LETTERS
 * run: RANKS=3 LETTERS
 * run: RANKS=2 SOCKETS
 * run: RANKS=3 SOCKETS
 * fails with RANKS=3 SHM: OWN_REASON WORD_FIRST PATIENCE
 * fails with RANKS=3 DEVICE: NO_SWAP STORE_OWN
 * hangs with RANKS=3 DEVICE: TELL_NOBODY
 * hangs with RANKS=3 LETTERS: NO_LETTER
 * fails with RANKS=3 SOCKETS: NO_REASON HEARS_LAST RESET
 * hangs with RANKS=3 SOCKETS: KEPT_OPEN
 */
#define CELLS 1
#define MESSAGE 0 /* the reason of each rank: its number, from 1 */
#include "memory.pml"

#define MINE (me + 1)
bool all_clocks, no_clock;

byte finish_message[RANKS]; /* 0 = comm->finished is not set */
byte completed_with;        /* the message of all operations so far; 0 = there is none */

/* epx_comm_finish (src/core/health/comm_end.c): once */
inline finish(message)
{
    d_step {
        if
        :: finish_message[me] == 0 -> finish_message[me] = message
        :: else
        fi
    }
}

#ifdef SHM

byte author; /* on the part of rank 0: 0, or the rank whose message it is, from 1 */
bool published;

#ifdef FAULT_PATIENCE /* the message is written after its author won; who lost waits for it, but
                         only for some time, and if that runs out keeps its own */
#define IS_TOLD published
#else
#define IS_TOLD (author != 0)
#endif

/* read_obituary, by shm_beat and shm_announce (transport_shm.c) */
inline hear()
{
    assert(memory[CELL(author - 1, MESSAGE)] != 0);
    finish(memory[CELL(author - 1, MESSAGE)])
}

/* What is in the word after the compare-and-swap of shm_announce there */
#define SWAPPED ((author == 0) * MINE + author)

/* shm_announce there */
inline announce()
{
#ifdef FAULT_PATIENCE
    author = SWAPPED;
    if
    :: author == MINE ->
        store(me, MESSAGE, MINE);
        post(me, published, true)
    :: else ->
        if
        :: published -> hear()
        :: finish(MINE)
        fi
    fi;
    finish(MINE)
#else
    if
    :: author == 0 ->
#ifdef FAULT_WORD_FIRST
        author = SWAPPED;
        store(me, MESSAGE, MINE)
#else
        store(me, MESSAGE, MINE);
        post(me, author, SWAPPED)
#endif
    :: author != 0
    fi;
#ifdef FAULT_OWN_REASON /* who lost keeps its own */
    finish(MINE)
#else
    hear()
#endif
#endif
}

#elif defined(DEVICE)

byte abort_word[RANKS]; /* in each control window */

#define IS_TOLD (abort_word[me] != 0)

/* outcome_of_abort (waits.cuh), or beat (src/coll/device/device_liveness.c) */
inline hear()
{
    finish(abort_word[me])
}

#define STORE_WORD(r) abort_word[r] = word

/* give_up (waits.cuh): a kernel whose clock ran out, or that of announce there */
inline announce()
{
#ifdef FAULT_TELL_NOBODY /* a rank stores the word where it reads it itself */
    abort_word[me] = MINE;
#else
#ifdef FAULT_NO_SWAP
    word = (abort_word[0] == 0 -> 0 : abort_word[0]);
    abort_word[0] = (word == 0 -> MINE : word);
#else
    d_step {
        word = abort_word[0];
        abort_word[0] = (word == 0 -> MINE : word)
    }
#endif
#ifdef FAULT_STORE_OWN
    word = MINE;
#else
    word = (word == 0 -> MINE : word);
#endif
    abort_word[me] = word;
    EACH_RANK(STORE_WORD);
#endif
    hear()
}

#elif defined(SOCKETS)

#define IS_GONE(r) ((r) + 1)  /* the reason that a rank is gone */
#undef MINE
#define MINE (RANKS + me + 1) /* the reason of a clock */
#define END_OF_FILE 100

chan socket[RANKS * RANKS] = [5] of { byte }; /* from a rank to a rank */
#define SOCKET(from, to) socket[(from) * RANKS + (to)]
byte letter[RANKS], gone[RANKS]; /* the first ones that came; 0 = none */

/* read_peer (src/control/connections.c): all that is there now */
#define READ(r)                                                                                    \
    atomic {                                                                                       \
        do                                                                                         \
        :: nempty(SOCKET(r, me)) ->                                                                \
            SOCKET(r, me) ? word;                                                                  \
            if                                                                                     \
            :: word == END_OF_FILE && gone[me] == 0 -> gone[me] = IS_GONE(r)                       \
            :: word != END_OF_FILE && letter[me] == 0 -> letter[me] = word                         \
            :: else                                                                                \
            fi                                                                                     \
        :: empty(SOCKET(r, me)) -> break                                                           \
        od                                                                                         \
    }

#define SEND_REASON(r) SOCKET(me, r) ! word

/* epx_comm_give_up with what lost says (src/control/control_sockets.c) */
inline give_up_lost()
{
    word = gone[me];
#ifndef FAULT_NO_LETTER
    EACH_RANK(SEND_REASON);
#endif
    finish(gone[me])
}

/* epx_comm_hear (src/core/health/comm_end.c): sockets, then letters, and only then who is lost */
inline hear()
{
    EACH_RANK(READ);
#ifdef FAULT_HEARS_LAST
    if
    :: gone[me] != 0 -> give_up_lost()
    :: else -> finish(letter[me])
    fi
#else
    if
    :: letter[me] != 0 -> finish(letter[me])
    :: else -> give_up_lost()
    fi
#endif
}

#if RANKS == 2
#define IS_TOLD nempty(SOCKET(first, me))
#else
#define IS_TOLD (nempty(SOCKET(first, me)) || nempty(SOCKET(second, me)))
#endif

/* epx_letter_liveness_announce (letter_liveness.c) */
inline announce()
{
    word = MINE;
#ifndef FAULT_NO_LETTER
    EACH_RANK(SEND_REASON);
#endif
    finish(MINE)
}

#ifdef FAULT_RESET /* the end of a connection overtakes what was sent */
#define FORGET(r)                                                                                  \
    do                                                                                             \
    :: nempty(SOCKET(me, r)) -> SOCKET(me, r) ? word                                               \
    :: empty(SOCKET(me, r)) -> break                                                               \
    od;
#else
#define FORGET(r)
#endif

/* The system, when a process has died */
#define CLOSE(r)                                                                                   \
    atomic {                                                                                       \
        FORGET(r)                                                                                  \
        SOCKET(me, r) ! END_OF_FILE                                                                \
    }

/* free_sockets (control_sockets.c): BYE with the reason, which told there takes as a letter */
#ifdef FAULT_NO_REASON
#define LEAVE(r) CLOSE(r)
#else
#define LEAVE(r)                                                                                   \
    SOCKET(me, r) ! finish_message[me];                                                            \
    CLOSE(r)
#endif

#else /* LETTERS */

chan letters_to[RANKS] = [RANKS] of { byte };

#define IS_TOLD nempty(letters_to[me])

/* read_letter (letter_liveness.c), letter_came (ucx_liveness.c): LETTER_END */
inline hear()
{
    letters_to[me] ? word;
    finish(word)
}

#define SEND_END(r) letters_to[r] ! MINE

/* epx_letter_liveness_announce, announce there */
inline announce()
{
#ifndef FAULT_NO_LETTER
    EACH_RANK(SEND_END);
#endif
    finish(MINE)
}

#endif

#if defined(LETTERS) || defined(SOCKETS)
#define SAME_MESSAGE (all_clocks || completed_with == 0 || completed_with == finish_message[me])
#else
#define SAME_MESSAGE (completed_with == 0 || completed_with == finish_message[me])
#endif

/* epx_comm_drain_finished (src/core/health/comm_end.c) */
inline complete()
{
    atomic {
        assert(finish_message[me] != 0 && SAME_MESSAGE);
        assert(!no_clock || finish_message[me] == dead + 1);
        completed_with = finish_message[me]
    }
}

RANK(me)
{
    byte i, word;

    {
        /* epx_progress_comm in src/core/progress.c, epx_comm_clock in src/core/health/patience.c */
        if
        :: IS_TOLD -> hear()
        :: !no_clock && (me == 0 || all_clocks) -> announce()
        fi;
        complete();
        complete()
#ifdef SOCKETS
        ;
        EACH_RANK(LEAVE)
#endif
    } unless { dead == me };
#if defined(SOCKETS) && !defined(FAULT_KEPT_OPEN) /* by a child of the process */
    if
    :: dead == me -> EACH_RANK(CLOSE)
    :: else
    fi
#endif
}

#ifdef SOCKETS
proctype death()
{
    if
    :: dead = 0
    :: dead = 1
#if RANKS > 2
    :: dead = 2
#endif
    fi
}
#endif

init {
    if
    :: lands_late = true
    :: skip
    fi;
    atomic {
        START_RANKS;
        if
        :: skip
        :: all_clocks = true; run fate()
#ifdef SOCKETS
        :: no_clock = true; run death()
#endif
        fi
    }
}

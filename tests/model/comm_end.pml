/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm_end.pml - the end of a communicator: epx_comm_give_up and epx_comm_finish in
 * src/core/progress.c over the three ways by which ranks learn of it. The names are those of the
 * code. A comment before a step names the function that does it, and its file.
 *
 *   SHM       the author and its message in src/transport/shm/transport_shm.c
 *   DEVICE    the abort word of src/kernels/protocol/waits.cuh
 *   LETTERS   src/transport/mpi/letter_liveness.c and src/transport/ucx/ucx_liveness.c
 *
 * Each rank has two operations in flight. Either the clock of rank 0 alone runs, and nobody dies;
 * or all clocks do, and a rank may die at any step. A clock may run out at any step.
 *
 * Claims: the operations of every survivor complete, all with one message, the reason of a rank
 * that gave up. But where ranks write letters, two that give up before they have heard of each
 * other keep their own reasons: there it is one message where one clock runs.
 *
 * run: RANKS=2 SHM
 * run: RANKS=3 SHM
 * run: RANKS=2 DEVICE
 * run: RANKS=3 DEVICE
 * run: RANKS=2 LETTERS
 * run: RANKS=3 LETTERS
 * fails with RANKS=3 SHM: OWN_REASON WORD_FIRST PATIENCE
 * fails with RANKS=3 DEVICE: NO_SWAP STORE_OWN
 * hangs with RANKS=3 DEVICE: TELL_NOBODY
 * hangs with RANKS=3 LETTERS: NO_LETTER
 */
#define CELLS 1
#define MESSAGE 0 /* the reason of each rank: its number, from 1 */
#include "memory.pml"

#define MINE (me + 1)
bool all_clocks;

byte finish_message[RANKS]; /* 0 = comm->finished is not set */
byte completed_with;        /* the message of all operations so far; 0 = there is none */

/* epx_comm_finish (src/core/progress.c): once */
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

#if defined(LETTERS)
#define SAME_MESSAGE (all_clocks || completed_with == 0 || completed_with == finish_message[me])
#else
#define SAME_MESSAGE (completed_with == 0 || completed_with == finish_message[me])
#endif

/* drain_finished (src/core/progress.c) */
inline complete()
{
    atomic {
        assert(finish_message[me] != 0 && SAME_MESSAGE);
        completed_with = finish_message[me]
    }
}

RANK(me)
{
    byte i, word;

    {
        /* progress_comm and epx_comm_clock (src/core/progress.c) */
        if
        :: IS_TOLD -> hear()
        :: me == 0 || all_clocks -> announce()
        fi;
        complete();
        complete()
    } unless { dead == me }
}

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
        fi
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * shrink.pml - who goes on: src/core/health/survivors.c, and the fence behind it in
 * src/api/api_health.c. The names are those of the code.
 *
 * The ranks of an old communicator shrink it. Each may die at any step, and wait no longer at any
 * step of a wait. One may have stopped before, in the middle of a store into another rank's memory,
 * and wakes at any step. What the group of a proposal comes to is one step here: birth.c has why
 * all of them that live come to one verdict, and comm_end.pml what follows.
 *
 * Claims: ranks that go on and live have the same group, or groups that share no rank; then one of
 * the groups has died, for each hears the JOIN of the other, or LEFT. Nobody fails of whose group
 * another goes on. No store is seen in the memory of a rank that has shrunk. Memory of a GPU that a
 * rank frees is mapped by no rank that lives (src/coll/device/health/device_leave.c,
 * src/transport/cuda/lost/kept_memory.c).
 *
 * run: RANKS=2
 * run: RANKS=3
 * fails with RANKS=3: NO_FENCE NO_VERDICT OWN_VERDICT NO_LEFT LOOKS_FIRST
 * fails with RANKS=3: NO_LEAVE LEAVES_LATE FREES_AT_ONCE
 */
#define NONE 0
#if RANKS == 2
#define SETS 4
#define LAST 1
#else
#define SETS 8
#define LAST 2
#endif
#define MINE (1 << me)

byte joined[RANKS];   /* of each rank, whose JOIN it has, as bits */
byte proposal[RANKS]; /* that it took; 0 = none */
bool left[RANKS];     /* LEFT has come */
byte adopted[RANKS];  /* the group in whose collectives it is */
bool made[SETS];      /* the verdict on the communicator of a group */
bool failed[SETS];
byte group[RANKS];    /* with which it goes on */
bool over[RANKS];     /* it has an error */
bool dead[RANKS], freed[RANKS];

/* The memory of the last rank, into which another one stores late: the pages that ranks share, and
 * those that the fence puts in their place; what it read there as it had shrunk. */
bool shared_pages, own_pages, maps_own, read_there;
#define SEEN (maps_own -> own_pages : shared_pages)

/* The last rank's memory on a GPU: who has it mapped, as bits. */
byte maps = SETS - 1;
#define UNMAPPED(r) ((r) == LAST || !IS(maps, r) || dead[r])

#define GONE(r) (dead[r] || freed[r])
#define IS(set, r) ((set) >> (r) & 1)

/* Claims, at each end of a rank. */
inline check()
{
    d_step {
        for (a : 0 .. LAST) {
            for (b : 0 .. LAST) {
                if
                :: group[a] && group[b] && !dead[a] && !dead[b] -> assert(group[a] == group[b])
                :: else
                fi;
                if
                :: group[a] && IS(group[a], b) && !dead[b] -> assert(!over[b])
                :: else
                fi
            }
        }
        a = 0;
        b = 0
    }
}

#define DIE dead[me] = true; goto end

/* tell(LETTER_JOIN): one rank after the other. */
inline join()
{
    r = 0;
    do
    :: r < RANKS && r != me -> joined[r] = joined[r] | MINE; r++
    :: r == me -> r++
    :: r == RANKS -> break
    :: r < RANKS -> DIE
    od
}

#define JOINED(r) (IS(joined[me], r) || r == me)
#define LIVES(r) (JOINED(r) && (r == me || !GONE(r)))

/* all_have_joined */
#define CAME(r) (JOINED(r) || GONE(r))
#define ALL_HAVE_JOINED (proposal[me] || (CAME(0) && CAME(1) && CAME(LAST)))

/* find_proposer */
#define PROPOSER (LIVES(0) -> 0 : (LIVES(1) -> 1 : LAST))

/* The ranks that have joined and live, as this rank heard last (listen): where one is known to be
 * gone, what it had sent before was read, too. */
inline find_set()
{
    d_step {
        set = (LIVES(0) -> 1 : 0) | (LIVES(1) -> 2 : 0);
#if RANKS > 2
        set = set | (LIVES(2) -> 4 : 0);
#endif
        proposal[me] = set
    }
}

inline propose()
{
    r = 0;
    do
    :: r < RANKS && r != me && IS(set, r) ->
        d_step {
            if
            :: proposal[r] == NONE -> proposal[r] = set
            :: else
            fi;
            r++
        }
    :: r < RANKS && (r == me || !IS(set, r)) -> r++
    :: r == RANKS -> break
    :: r < RANKS -> DIE
    od
}

/* Whether each rank of the group is in its collectives. */
#define IN(r) (!IS(set, r) || (adopted[r] == set && !dead[r]))
#define ALL_ARE_IN (IN(0) && IN(1) && IN(LAST))

/* make_smaller (src/api/api_health.c), and the verdict of birth.c. */
inline make()
{
    adopted[me] = set;
    if
    :: made[set]
    :: failed[set]
#ifdef FAULT_NO_VERDICT
    :: true
#else
    :: atomic { ALL_ARE_IN && !failed[set] -> made[set] = true }
#endif
#ifdef FAULT_OWN_VERDICT
    :: goto error
#endif
    :: atomic { !made[set] -> failed[set] = true } /* a time-out, or a rank that is gone */
    :: DIE
    fi
}

/* epx_device_leave_peers */
#define LEAVE maps = maps & (SETS - 1 - MINE)

/* Frees memory of the GPU, now or later, when the processes of all that were lost have ended. */
#ifdef FAULT_FREES_AT_ONCE
#define ENDED(r) true
#else
#define ENDED(r) ((r) == LAST || IS(set, r) || dead[r])
#endif
inline free_memory()
{
    if
    :: d_step {
           me == LAST && ENDED(0) && ENDED(1) && ENDED(LAST) ->
           assert(UNMAPPED(0) && UNMAPPED(1) && UNMAPPED(LAST))
       }
    :: true
    fi
}

#ifdef FAULT_NO_VERDICT
#define GOES_ON !failed[set]
#else
#define GOES_ON made[set]
#endif

/* epx_survivors_leave_others: before this rank can be gone. */
inline leave_others()
{
    r = 0;
    do
    :: r < RANKS && !IS(set, r) ->
#ifndef FAULT_NO_LEFT
        left[r] = true;
#endif
        r++
    :: r < RANKS && IS(set, r) -> r++
    :: r == RANKS -> break
    :: r < RANKS -> DIE
    od
}

proctype rank(byte me)
{
    byte r, set, a, b;

#ifdef FAULT_LOOKS_FIRST
    /* ranks that joined are looked for before the own JOIN: two may miss each other */
    if
    :: ALL_HAVE_JOINED
    :: true
    fi;
    if
    :: atomic { PROPOSER == me -> find_set() }
       propose()
    :: else
    fi;
#endif
    join();
    if
    :: ALL_HAVE_JOINED
    :: left[me]
    :: true /* epx_timeout_ms */
    :: DIE
    fi;
    if
    :: left[me] -> goto error
    :: else
    fi;
    if
    :: proposal[me]
    :: atomic { !proposal[me] && PROPOSER == me && !left[me] -> find_set() }
       propose()
    :: left[me] -> goto error
    :: true -> goto error
    :: DIE
    fi;
    set = proposal[me];
#ifndef FAULT_NO_LEAVE
#ifndef FAULT_LEAVES_LATE
    LEAVE;
#endif
#endif
    make();
    if
    :: GOES_ON
    :: else -> goto error
    fi;
#ifdef FAULT_LEAVES_LATE
    LEAVE;
#endif
    leave_others();
    if
    :: me == LAST ->
#ifndef FAULT_NO_FENCE
        own_pages = shared_pages; /* epx_node_window_fence */
        maps_own = true;
#endif
        read_there = SEEN
    :: else
    fi;
    group[me] = set;
    check();
    if
    :: freed[me] = true; /* EPX_Comm_free of the old one */
       free_memory()
    :: true
    :: DIE
    fi;
    if
    :: me == LAST -> assert(SEEN == read_there)
    :: else
    fi;
    goto end;
error:
    over[me] = true;
    check();
end:
    skip
}

/* A store of a rank that stopped in the middle of it, and wakes at any time. */
proctype late_store()
{
    shared_pages = true
}

init {
    atomic {
        run rank(0);
        run rank(1);
#if RANKS > 2
        run rank(2);
#endif
        run late_store()
    }
}

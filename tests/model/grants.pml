/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grants.pml - grants that persistent requests with fixed counts keep: src/coll/direct/
 * alltoallv_direct.c, whose names these are. Two ranks, an edge each way. edges.pml has the words
 * of an edge and that what they say comes with them: here a word comes in one step. Rows that go
 * with words or by the ring are left out.
 *
 * A rank has two persistent requests, each with a receive buffer of its own. It starts them again
 * and again, frees one and makes it anew, or calls EPX_Neighbor_alltoallv, in any order: ranks
 * need not start alike ones together. Operations run in the order of the starts, each after the
 * last, so any number in flight are no more than that order. The user reads a receive buffer when
 * its operation is complete, and once more before it is started again.
 *
 * Claims: rows lie in the buffer of the operation they are for, as many as were sent, until they
 * were read; a row that goes by a kept grant is one that the receiver expects; an operation fails
 * only if a rank sends another number than the fixed one that the receiver learned; no wait is for
 * ever.
 *
 * run: RANKS=2 OPS=3
 * long: RANKS=2 OPS=4
 * long: RANKS=2 OPS=3 OTHERS
 * fails with RANKS=2 OPS=3: ANY_GRANT FIRST_NUMBER LEARNS_ALONE NEVER_ASKS WORD_FIRST
 * fails with RANKS=2 OPS=4: EARLY_ROW
 * hangs with RANKS=2 OPS=3: NO_GRANT
 * hangs with RANKS=2 OPS=3 OTHERS: WORDS_ALONE
 */
#define CELLS 3 /* the receive buffers of the other rank: of requests 0 and 1, and of a call */
#include "memory.pml"

#define CALL 2
#define IS_FIXED(request) ((request) != CALL)
/* Rows that a request sends */
#define ROWS_OF(request) (1 + ((request) != 0))

mtype = { WORDS, WORD, GRANT, ROWS, THROUGH, COUNTED, STORED, NOTHING, PLACE };

/* What a rank writes for the other one; AT has two banks, the others none. */
#define AT(rank, n) (2 * (rank) + ((n) & 1))
byte ready[2 * RANKS], ready_known[2 * RANKS];
byte rows[2 * RANKS], rows_num[2 * RANKS];
mtype rows_kind[2 * RANKS];
bool rows_fixed[2 * RANKS];
byte rows_known[2 * RANKS];
byte granted[RANKS], grant_buffer[RANKS], grant_number[RANKS];
mtype grant_row[RANKS];
byte arrived[RANKS];

/* Which request a rank has in each operation; only claims read it. */
byte begun[RANKS * (OPS + 1)];
#define BEGUN(rank, n) begun[(rank) * (OPS + 1) + (n)]

/* post_rows: n is written last, and what the rank stored before is there then */
inline post_rows(kind)
{
    atomic {
        rows_num[AT(me, n)] = ROWS_OF(request);
        rows_kind[AT(me, n)] = kind;
        rows_fixed[AT(me, n)] = IS_FIXED(request);
        rows_known[AT(me, n)] = knows;
        post(me, rows[AT(me, n)], n)
    }
}

/* post_ready */
inline post_ready()
{
    atomic {
        ready_known[AT(me, n)] = knows;
        post(me, ready[AT(me, n)], n)
    }
}

/* post_grant; what follows awaits rows if it says where they go */
inline post_grant(where)
{
#ifdef FAULT_NO_GRANT /* none is posted to a rank that had one */
    if
    :: knows -> skip
    :: else ->
#endif
    atomic {
        grant_row[me] = where;
        grant_buffer[me] = request;
        grant_number[me] = (IS_FIXED(request) -> known[request] : 0);
        post(me, granted[me], n)
    }
#ifdef FAULT_NO_GRANT
    fi
#endif
}

/* may_have_grant: kept_grant is that of the request, by its number */
#define MAY_HAVE_GRANT (IS_FIXED(request) && kept_grant[request] != 0)

#ifdef FAULT_ANY_GRANT /* any grant is taken for one in force */
#define IN_FORCE(known) ((known) != 0)
#elif defined(FAULT_NEVER_ASKS) /* a rank that has a grant takes it, whatever the receiver knows */
#define IN_FORCE(known) true
#else
#define IN_FORCE(known) ((known) != 0 && kept_grant[request] == (known))
#endif

/* send_rows */
inline send_rows(known)
{
    if
    :: !MAY_HAVE_GRANT -> out = GRANT
    :: MAY_HAVE_GRANT && !IN_FORCE(known) -> post_rows(COUNTED); out = GRANT
    :: MAY_HAVE_GRANT && IN_FORCE(known) ->
        to = kept_buffer[request];
        asked = false;
        out = ROWS
    fi
}

/* await_grant */
inline take_grant()
{
    to = grant_buffer[other];
    if
    :: grant_row[other] == NOTHING -> out = THROUGH
    :: else ->
        if
        :: IS_FIXED(request) ->
            kept_buffer[request] = to;
#ifdef FAULT_FIRST_NUMBER /* a later grant bears the number of the first */
            kept_grant[request] = (kept_grant[request] == 0 -> grant_number[other]
                                                            : kept_grant[request])
#else
            kept_grant[request] = grant_number[other]
#endif
        :: else
        fi;
        out = ROWS
    fi
}

/* store_rows */
inline store_row()
{
#ifdef FAULT_WORD_FIRST
    if
    :: asked -> post(me, arrived[me], n); store(me, to, n)
    :: else -> post_rows(STORED); store(me, to, n)
    fi;
#else
    store(me, to, n);
    if
    :: asked -> post(me, arrived[me], n)
    :: else -> post_rows(STORED)
    fi;
#endif
    out = THROUGH
}

#ifdef FAULT_LEARNS_ALONE /* a receiver with fixed counts takes those of any sender for fixed */
#define BOTH_FIXED IS_FIXED(request)
#else
#define BOTH_FIXED (IS_FIXED(request) && rows_fixed[AT(other, n)])
#endif

/* epx_edges_in_agree, place and epx_alltoallv_learn (src/coll/alltoallv.c) */
inline place()
{
    came = rows_num[AT(other, n)];
    if
    :: BOTH_FIXED -> known[request] = n; known_rows[request] = came
#ifdef OTHERS /* another source of the receiver, which is not here, may not be fixed */
    :: BOTH_FIXED
#endif
    :: else
    fi;
    in = WORD
}

/* check_word */
#define DIFFERS (knows != 0 && rows_num[AT(other, n)] != came)

/* await_rows_word */
inline take_word()
{
    if
    :: DIFFERS ->
        assert(rows_kind[AT(other, n)] == COUNTED && IS_FIXED(BEGUN(other, knows)));
        failed = true;
        post_grant(NOTHING);
        in = THROUGH
    :: !DIFFERS && rows_kind[AT(other, n)] == COUNTED -> post_grant(PLACE); in = ROWS
    :: !DIFFERS && rows_kind[AT(other, n)] == STORED -> in = THROUGH
    fi
}

#ifdef FAULT_WORDS_ALONE /* a rank that awaits words sends nothing on */
#define SENDS (in != WORDS)
#else
#define SENDS true
#endif

/* is_ready: the word rows of the edge back stands for ready, where it comes first */
#define TOLD_READY (ready[AT(other, n)] == n)
#define TOLD_BY_ROWS (rows[AT(other, n)] == n)
#define KNOWN (TOLD_READY -> ready_known[AT(other, n)] : rows_known[AT(other, n)])
#ifdef FAULT_EARLY_ROW /* a sender with a grant reads a ready word before it has come */
#define IS_READY (TOLD_READY || TOLD_BY_ROWS || MAY_HAVE_GRANT)
#else
#define IS_READY (TOLD_READY || TOLD_BY_ROWS)
#endif

/* What the user starts; a request that is made anew has kept nothing. */
inline choose_request()
{
    if
    :: request = 0
    :: request = 0; kept_grant[0] = 0; known[0] = 0
    :: request = 1
    :: request = CALL
    fi;
    BEGUN(me, n) = request;
    assert(read[request] == 0 || memory[CELL(other, request)] == read[request])
}

/* begin_edges */
inline begin()
{
    knows = 0;
    if
    :: IS_FIXED(request) -> knows = known[request]; came = known_rows[request]
    :: else
    fi;
    in = (knows != 0 -> WORD : WORDS);
    out = WORD;
    asked = true;
    failed = false;
    if
    :: !MAY_HAVE_GRANT -> post_rows(COUNTED)
    :: MAY_HAVE_GRANT -> post_ready()
    fi
}

/* The user, when the operation is complete */
inline read_rows()
{
    assert(failed || memory[CELL(other, request)] == n && came == ROWS_OF(BEGUN(other, n)));
    read[request] = (failed -> 0 : n);
    to = 0; /* a value that nobody reads makes states differ */
    came = 0
}

proctype rank(byte me, other)
{
    byte n = 1, i, request, knows, told, came, to;
    byte kept_grant[2], kept_buffer[2], known[2], known_rows[2], read[3];
    mtype in, out;
    bool asked, failed;

    do
    :: n > OPS -> break
    :: else ->
        atomic { choose_request() };
        begin();
        do /* go_on of edges_out.c and of edges_in.c, in any order */
        :: out == WORD && SENDS && IS_READY -> told = KNOWN; send_rows(told); told = 0
        :: out == GRANT && SENDS && granted[other] == n -> atomic { take_grant() }
        :: out == ROWS && SENDS -> store_row()
        :: in == WORDS && rows[AT(other, n)] == n -> atomic { place() }
        :: in == WORD && rows[AT(other, n)] == n -> take_word()
        :: in == ROWS && arrived[other] == n -> in = THROUGH
        :: in == THROUGH && out == THROUGH -> break
        od;
        atomic { read_rows() };
        n++
    od
}

init {
    if
    :: lands_late = true
    :: skip
    fi;
    atomic {
        run rank(0, 1);
        run rank(1, 0)
    }
}

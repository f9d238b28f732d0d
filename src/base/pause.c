/* SPDX-License-Identifier: BSD-3-Clause */
/* pause.c - yields the core after a few passes in vain, and sleeps after many. */
#include "base/pause.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"

enum { SPINS_BEFORE_YIELD = 16, PASSES_BEFORE_MPI = 64, YIELDS_BEFORE_NAP = 65536 };
enum { NAP_NS = 50000 };
enum { PASSES_BEFORE_TRIAL = 64, YIELD_ALONE_NS = 1500 };

/* MPI's progress, where it is in use: a blocked EPX call must not keep the user's own messages from
 * moving. */
static void (*_Atomic progress_messages)(void);

void epx_pause_progresses(void (*progress)(void))
{
    atomic_store(&progress_messages, progress);
}

/*
 * What this thread knows of its core. While others want it, it is given away after every pass in
 * vain. Whether they do is told by the time that it was away: a yield that comes back at once ran
 * nobody. So a thread that has a core of its own yields after some passes, and between calls of
 * EPX_Test, of which idle_passes counts those in vain, only once in PASSES_BEFORE_TRIAL.
 */
static _Thread_local struct {
    int idle_passes;
    int shares_core;
} caller;

static void yield_core(void)
{
    int64_t start = epx_now_ns();

    sched_yield();
    caller.shares_core = epx_now_ns() - start >= YIELD_ALONE_NS;
}

/*
 * Who yields may still keep the core: beside a rank that yielded all the time Linux 6.18 let nobody
 * else run on its core for a minute, and the rank that it waited for missed the time-out. So a wait
 * that has lasted for many passes naps.
 */
void epx_pause_in_thread(int idle_passes)
{
    static const struct timespec nap = {0, NAP_NS};

    if (idle_passes >= YIELDS_BEFORE_NAP)
        nanosleep(&nap, NULL);
    else if (idle_passes >= (caller.shares_core ? 1 : SPINS_BEFORE_YIELD))
        yield_core();
}

void epx_pause(int idle_passes)
{
    void (*progress)(void) = atomic_load(&progress_messages);

    if (progress && idle_passes % PASSES_BEFORE_MPI == PASSES_BEFORE_MPI - 1)
        progress();
    epx_pause_in_thread(idle_passes);
}

void epx_pause_between_calls(int moved)
{
    caller.idle_passes = moved ? 0 : caller.idle_passes + 1;
    if (caller.idle_passes < SPINS_BEFORE_YIELD)
        return;
    if (caller.shares_core || caller.idle_passes % PASSES_BEFORE_TRIAL == 0)
        yield_core();
}

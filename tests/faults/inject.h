/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inject.h - lets one call of the library fail: an allocation or another request for the system's
 * resources, or a call of MPI. The program links the library's inside with -Wl,--wrap and stands
 * between it and MPI by MPI's profiling names. lint_inject.sh finds calls that are missing here.
 */
#ifndef INJECT_H
#define INJECT_H

enum inject_kind { INJECT_SHORTAGE, INJECT_MPI, INJECT_STOP };

/* From now on the nth call of this kind fails, counted from 1; 0 = none. */
void inject_arm(enum inject_kind kind, int nth);
/* In memory of all ranks: how many agreements (MPI_Iallreduce) a process had been through, and how
 * many duplications of a communicator it had begun, when it stopped. */
struct inject_begun {
    _Atomic int agreements, duplications;
};
/*
 * From now on this process stops itself (SIGSTOP) right before its nth call of MPI; 0 = never. The
 * first MPI_Test for a collective counts, the others do not: how many there are depends on the
 * other ranks. Before it stops it writes what it has begun.
 */
void inject_arm_stop(int nth, struct inject_begun *begun);
/* The longest time in seconds that passed between two calls of MPI here since inject_arm_stop: this
 * process was kept from its work, or blocked, so long, and answered no letter meanwhile. */
double inject_longest_pause(void);
/* The function that failed, NULL if none did; nothing fails any more. */
const char *inject_disarm(void);
/* Waits for room, polls and probes are counted only when they complete. While armed for MPI,
 * MPI_Iprobe always fails: the library does not need its answer. */

/* What the library took and did not give back: memory, mappings, communicators, info objects. */
int inject_live(void);

/*
 * Collective over MPI_COMM_WORLD. A rank that missed the making of a communicator takes part now:
 * the others are still in it, or gave it up, and MPI makes no other communicator before.
 */
void inject_catch_up(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * inject.h - lets one call of the library fail: an allocation or another of the system's
 * resources, or a call of MPI. The program links the library's inside with -Wl,--wrap and stands
 * between it and MPI by MPI's profiling names. lint_inject.sh finds calls left out here.
 */
#ifndef INJECT_H
#define INJECT_H

enum inject_kind { INJECT_SHORTAGE, INJECT_MPI };

/* From now on the nth call of this kind fails, counted from 1; 0 = none. */
void inject_arm(enum inject_kind kind, int nth);
/* The function that failed, NULL if none did; nothing fails any more. */
const char *inject_disarm(void);
/* Completed waits for room, polls and probes are counted when they complete: MPI_Iprobe always
 * fails while armed for MPI, the library does not need its answer. */

/* What the library took and did not give back: memory, mappings, communicators, info objects. */
int inject_live(void);

/*
 * Collective over MPI_COMM_WORLD: a rank that missed the making of a communicator in which the
 * others still are, or which they gave up, makes up for it. MPI makes no other one before.
 */
void inject_catch_up(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * suite.h - a Check suite that all ranks run together. A rank notes a failed EXPECT on standard
 * error and goes on; SETTLE, collective, fails the test on every rank if any rank noted one. So
 * no rank leaves a test while the others still wait for it in a collective.
 */
#ifndef SUITE_H
#define SUITE_H

#include <check.h>

#include "epx.h"

/* Check writes down the place of every assertion that holds, to show the last one if the process
 * crashes, which takes longer than what is asserted. These tests run in the process that would
 * crash, and a debugger shows the place. */
#define _mark_point(file, line) ((void)0)

extern int suite_rank, suite_size;
extern int *suite_nodes; /* [suite_size] node of each rank, numbered by lowest rank */

#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
int suite_complain(const char *file, int line, const char *condition, const char *format, ...);

/* Collective: the number of failed expectations of all ranks since the last call. */
int suite_complaints(void);

/* Local: the failed expectations of this rank alone since the last suite_complaints. */
int suite_own_complaints(void);

/* 1 if the condition holds; else 0, and the test fails at the next SETTLE. */
#define EXPECT(condition, ...)                                                                     \
    ((condition) ? 1 : suite_complain(__FILE__, __LINE__, #condition, __VA_ARGS__))

#define EXPECT_CODE(call, wanted) suite_expect_code(__FILE__, __LINE__, #call, call, wanted)
int suite_expect_code(const char *file, int line, const char *call, int code, int wanted);

#define SETTLE()                                                                                   \
    do {                                                                                           \
        int failed_ = suite_complaints();                                                          \
        if (failed_)                                                                               \
            ck_abort_msg("%d failed expectations, see standard error", failed_);                   \
    } while (0)

/* An info object from pairs of key and value, ended by NULL. */
MPI_Info suite_info(const char *key, ...);
/* A communicator over MPI_COMM_WORLD with the hints of such a list; fails the test if there is
 * none. */
EPX_Comm suite_comm(const char *key, ...);

/* Collective: frees a communicator, none of whose calls may have waited for the GPU; settles. */
void suite_free_comm(EPX_Comm *comm);

/* A communicator for each test; on a GPU and of many ranks, where that takes long, one for all of
 * them. */
void suite_add_fixture(TCase *tcase, void (*open)(void), void (*close)(void));

/* The transport that the run asks for: "auto" if none. */
const char *suite_transport(void);
/* Whether that is one of devices whose ranks store into each other's memory. */
int suite_stores_on_devices(void);

/* Seconds since some time. */
double suite_seconds(void);
/* Calls neither EPX nor MPI meanwhile. */
void suite_sleep_ms(int ms);

/* Whether the environment has the library send sums as float32: EPX_COMBINE_PARTIALS. */
int suite_wide_partials(void);
/* Whether it has the library add sums by last choice: EPX_COMBINE_ORDER. */
int suite_by_choice(void);

/* Ends the program on all ranks as skipped. */
void suite_skip(const char *reason);

/* Sets suite_rank, suite_size, suite_nodes; errors of MPI_COMM_WORLD return. suite_main does it. */
void suite_init(int *argc, char ***argv);

/* The main function: 0 and the line " No Errors" if every test passed on every rank. */
int suite_main(int *argc, char ***argv, Suite *(*make)(void));

#endif

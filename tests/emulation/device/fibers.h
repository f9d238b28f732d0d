/* SPDX-License-Identifier: BSD-3-Clause */
/* fibers.h - threads of kernels: they share one thread of the host, which goes from one to another
 * only where they say so. */
#ifndef FIBERS_H
#define FIBERS_H

#include <stddef.h>

/* Bytes of a stack: stacks lie behind each other, and not all on the same lines of a cache. */
enum { FIBER_BYTES = (48 << 10) + 5 * 64 };

struct fiber {
    void *stack,
        *at; /* stack: its highest address; at: where it goes on; NULL if it has no stack */
    void (*run)(void *);
    void *argument;
};

/* Gives a fiber a stack; it begins when it is entered first. `run` must end with fiber_leave. */
void fiber_make(struct fiber *fiber, void (*run)(void *), void *argument);
/* Takes the stack of a fiber that has ended; aborts if the fiber has left it. */
void fiber_free(struct fiber *fiber);
/* Runs the fiber until it leaves. */
void fiber_enter(struct fiber *fiber);
/* Goes back to who entered the fiber that runs. */
void fiber_leave(void);

#endif

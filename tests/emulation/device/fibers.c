/* SPDX-License-Identifier: BSD-3-Clause */
/* fibers.c - threads of kernels, with stacks of their own. */
#define _GNU_SOURCE
#include "emulation/device/fibers.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STACKS_AT_ONCE = 256 };
static const uint64_t canary = 0x6c6f77657374206fULL;

/* A stack that nobody has, at its highest address; its last word is the next one. */
static char *unused;
static struct fiber *running;
static void *outside;

#if defined(__x86_64__)
/* Keeps what a call must keep, stores where it stands, and goes on elsewhere. */
void fiber_switch(void **from, void *to);
__asm__(".text\n"
        ".globl fiber_switch\n"
        ".hidden fiber_switch\n"
        ".type fiber_switch, @function\n"
        "fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fiber_switch, . - fiber_switch\n"
        ".section .note.GNU-stack, \"\", @progbits\n"
        ".text\n");
enum { KEPT = 6 };
#elif defined(__aarch64__)
void fiber_switch(void **from, void *to);
__asm__(".text\n"
        ".globl fiber_switch\n"
        ".hidden fiber_switch\n"
        ".type fiber_switch, %function\n"
        "fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size fiber_switch, . - fiber_switch\n");
#else
#error "write fiber_switch for this processor"
#endif

static void **last_word(char *top)
{
    return (void **)(void *)(top - sizeof(void *));
}

static uint64_t *lowest_word(char *top)
{
    return (uint64_t *)(void *)(top - FIBER_BYTES);
}

static void make_stacks(void)
{
    char *all = mmap(NULL, (size_t)STACKS_AT_ONCE * FIBER_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (all == MAP_FAILED)
        abort();
    for (int i = 0; i < STACKS_AT_ONCE; i++) {
        char *top = all + (size_t)(i + 1) * FIBER_BYTES;

        *last_word(top) = unused;
        unused = top;
    }
}

/* The first function on every stack. */
static void begin(void)
{
    running->run(running->argument);
    abort();
}

/* Lays out a stack as fiber_switch leaves it, so that it returns to `begin`. */
static void *first_frame(char *top)
{
#if defined(__x86_64__)
    void **frame = (void **)(void *)top - 2 - KEPT; /* aligned as at a call */

    frame[KEPT] = (void *)(uintptr_t)begin;
#else
    void **frame = (void **)(void *)(top - 160);

    frame[11] = (void *)(uintptr_t)begin;
#endif
    return frame;
}

void fiber_make(struct fiber *fiber, void (*run)(void *), void *argument)
{
    char *top;

    if (!unused)
        make_stacks();
    top = unused;
    unused = *last_word(top);
    *lowest_word(top) = canary;
    *fiber = (struct fiber){.stack = top, .at = first_frame(top), .run = run, .argument = argument};
}

void fiber_free(struct fiber *fiber)
{
    char *top = fiber->stack;

    if (*lowest_word(top) != canary) {
        fprintf(stderr, "emulation: a thread of a kernel has used more than %d bytes of stack\n",
                FIBER_BYTES);
        abort();
    }
    *last_word(top) = unused;
    unused = top;
    fiber->stack = fiber->at = NULL;
}

void fiber_enter(struct fiber *fiber)
{
    running = fiber;
    fiber_switch(&outside, fiber->at);
}

void fiber_leave(void)
{
    fiber_switch(&running->at, outside);
}

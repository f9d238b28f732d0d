/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_messages.h - exchanges of messages of all lengths between memories that stand for those of
 * devices, by a transport, whose bytes are compared; for the unit tests of those that the proxy
 * calls. What a rank sends to itself is the proxy's.
 */
#ifndef EPX_TESTS_DEVICE_MESSAGES_H
#define EPX_TESTS_DEVICE_MESSAGES_H

#include "kernels/ring.h"
#include "pretend/pretend_copies.h"
#include "transport/transport.h"

extern struct epx_exchange *messages_exchange;
extern uint64_t *messages_arrived; /* [size] */

void messages_open(const struct epx_transport_ops *ops, void *state);
void messages_close(void);
/* Fills the exchange of this number and what it sends. */
void messages_prepare(uint64_t number);
/* Starts it. */
void messages_start(void);
/* Until all is queued, or the time is over: whether it is. */
int messages_go_on(double seconds);
/* Until the error that is expected. */
int messages_fail(double seconds);
/* After the copies: every byte, and those beside them. */
void messages_check(uint64_t number);
/* This rank has heard less of the silent one than of all others. */
void messages_expect_behind(int silent);

#endif

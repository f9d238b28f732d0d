/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device_messages.h - exchanges of messages of all lengths, by a transport, between memories that
 * stand for those of devices; the bytes are compared. For the unit tests of the transports that the
 * proxy calls. What a rank sends to itself is left out: the proxy copies it.
 */
#ifndef EPX_TESTS_DEVICE_MESSAGES_H
#define EPX_TESTS_DEVICE_MESSAGES_H

#include "kernels/ring.h"
#include "pretend/pretend_copies.h"
#include "pretend/pretend_copying.h"
#include "transport/transport.h"

extern struct epx_exchange *messages_exchange;
extern uint64_t *messages_arrived; /* [size] */

void messages_open(const struct epx_transport_ops *ops, void *state);
void messages_close(void);
/* Fills in the exchange of this number and the bytes that it sends. */
void messages_prepare(uint64_t number);
/* Starts the exchange. */
void messages_start(void);
/* Does what is still queued on streams, and copies that kernels are asked to make. */
void messages_drain(void);
/* Moves the exchange on until all is queued or the time is over; returns whether all is queued. */
int messages_go_on(double seconds);
/* Moves the exchange on until the error that is expected; returns whether it came. */
int messages_fail(double seconds);
/* After the copies: checks every byte received, and the bytes beside them. */
void messages_check(uint64_t number);
/* Expects that this rank has heard less of the silent rank than of all others. */
void messages_expect_behind(int silent);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.h - expects an error, its path through the error handler, and its message. */
#ifndef FAULT_H
#define FAULT_H

#include "epx.h"

/* Gives the communicator an error handler that counts. */
void fault_watch(EPX_Comm comm);

/*
 * The call fails with this code; the handler of comm is called exactly once, with a code whose
 * text is that of the error; the communicator has a message. comm NULL: no handler is called.
 */
#define EXPECT_FAULT(comm, call, wanted)                                                           \
    (fault_begin(), fault_end(__FILE__, __LINE__, #call, call, wanted, comm))
void fault_begin(void);
int fault_end(const char *file, int line, const char *call, int code, int wanted, EPX_Comm comm);

/* Expects the communicator's last message to have a part. */
int fault_message_has(EPX_Comm comm, const char *part);

#endif

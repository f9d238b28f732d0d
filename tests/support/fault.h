/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.h - expects an error, its path through the error handler, and what is said of it. */
#ifndef FAULT_H
#define FAULT_H

#include <stdio.h>

#include "epx.h"

/* Gives the communicator, and MPI_COMM_WORLD, an error handler that counts. */
void fault_watch(EPX_Comm comm);

/*
 * The call fails with this code; the handler of comm is called exactly once, with a code whose
 * text is that of the error; the communicator has a message. comm NULL: the handler of
 * MPI_COMM_WORLD is called.
 */
#define EXPECT_FAULT(comm, call, wanted)                                                           \
    (fault_begin(), fault_end(__FILE__, __LINE__, #call, call, wanted, comm))
/* The call fails with this code and no handler is called. */
#define EXPECT_UNTOLD(call, wanted)                                                                \
    (fault_begin(), fault_end_untold(__FILE__, __LINE__, #call, call, wanted))
void fault_begin(void);
int fault_end(const char *file, int line, const char *call, int code, int wanted, EPX_Comm comm);
int fault_end_untold(const char *file, int line, const char *call, int code, int wanted);

/* Expects the communicator's last message to have a part. */
int fault_message_has(EPX_Comm comm, const char *part);

/* Standard error goes to a file until the text is taken. */
struct capture {
    int saved;
    FILE *file;
};

void capture_begin(struct capture *capture);
void capture_end(struct capture *capture, char *text, size_t size);
/* How often a part stands in a text. */
int capture_count(const char *text, const char *part);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* bulk.h - bulk copies at the end of threads and blocks. */
#ifndef BULK_H
#define BULK_H

#include "emulation/device/threads.h"

/* Ends the program if a store of the thread has still to read shared memory. */
void bulk_end_thread(struct thread *thread);
/* Ends the program if a load is under way into shared memory, which is about to go. */
void bulk_end_block(const struct block *block);

#endif

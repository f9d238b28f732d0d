/* SPDX-License-Identifier: BSD-3-Clause */
/* machine_key.h - tells machines apart, and containers of one machine that share no memory. */
#ifndef EPX_BASE_MACHINE_KEY_H
#define EPX_BASE_MACHINE_KEY_H

#include <stdint.h>

/*
 * One number for processes whose machines have this name, were started at the same time, and
 * that see the same POSIX shared memory; else, as good as certainly, another number. Local, unlike
 * MPI_Comm_split_type, in which a rank that never comes would keep the others for ever.
 */
int64_t epx_machine_key(const char *name);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* machine.h - how much memory there is, how long a file may be, and which CPUs this process may
 * use. */
#ifndef EPX_BASE_MACHINE_H
#define EPX_BASE_MACHINE_H

#include <stdint.h>

/*
 * The most bytes that this process could ever have: memory and swap of the machine, or the limit of
 * its control group if that is less. What is more than this can be asked for, as Linux promises
 * memory that it does not have, but never be used.
 */
uint64_t epx_machine_memory(void);

/* The least memory limit of the control groups that the file `groups`, as /proc/self/cgroup, names,
 * below the folder `mounted`, as /sys/fs/cgroup; UINT64_MAX = none. */
uint64_t epx_machine_group_limit(const char *groups, const char *mounted);

/* The length that this process may give a file, shared memory too (RLIMIT_FSIZE). A signal that
 * ends the process answers an attempt at more. UINT64_MAX = any length. */
uint64_t epx_machine_file_limit(void);

enum { EPX_MACHINE_MOST_CPUS = 65535 };

/* The CPUs that this process may run on, as one number: in the lowest 16 bits how many, above them
 * which ones. Two processes of a machine have the same number if they may use the same CPUs. */
int64_t epx_machine_cpus(void);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* kernels.h - kernels that run on the emulated devices. */
#ifndef KERNELS_H
#define KERNELS_H

#include "emulation/include/emulation.h"

struct kernel;

/* A kernel begins, on a device: its blocks start when there is room. The launch outlives it.
 * `before` is the kernel that it overtakes, or NULL. */
struct kernel *kernel_start(const struct emulated_kernel *launch, int device,
                            const struct kernel *before);
int kernel_has_ended(const struct kernel *kernel);
/* Whether all its blocks have said that the next kernel may begin, or ended. */
int kernel_lets_next_begin(const struct kernel *kernel);
void kernel_free(struct kernel *kernel);
/* Runs all blocks for a while. Returns whether any did more than wait. */
int kernels_run(void);
int kernels_num(void);

#endif

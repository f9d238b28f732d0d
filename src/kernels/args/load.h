/* SPDX-License-Identifier: BSD-3-Clause */
/* load.h - loads the kernels of libepx_cuda before any of them is needed. */
#ifndef EPX_KERNELS_ARGS_LOAD_H
#define EPX_KERNELS_ARGS_LOAD_H

#ifdef __cplusplus
extern "C" {
#endif
/* Loads every kernel: loading one later could wait for a kernel that waits. */
int epx_load_kernels(void);
/* Whether kernels that were loaded can begin while the kernel before them runs: whether their code,
 * not only the GPU, knows how to wait for it. */
int epx_kernels_begin_early(void);
#ifdef __cplusplus
}
#endif

#endif

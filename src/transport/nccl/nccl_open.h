/* SPDX-License-Identifier: BSD-3-Clause */
/* nccl_open.h - opens NCCL, so that libepx_cuda can be loaded where it is missing. */
#ifndef EPX_TRANSPORT_NCCL_NCCL_OPEN_H
#define EPX_TRANSPORT_NCCL_NCCL_OPEN_H

/* Opens at the first call the NCCL that the process has loaded, as torch does, or one that the
 * loader finds. Returns whether it fits; else why, [EPX_WHY_MAX], says what is wrong. The functions
 * of nccl.h that the transports call are called after that only. */
int epx_nccl_open(char *why);
/* Whether what was opened is of the very version that this was built with. */
int epx_nccl_is_of_build(void);
/* Another function of NCCL's; NULL if it has none of this name. */
void *epx_nccl_find(const char *name);

#endif

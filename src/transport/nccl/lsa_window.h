/* SPDX-License-Identifier: BSD-3-Clause */
/* lsa_window.h - what only code compiled by nvcc can ask of NCCL's windows. */
#ifndef EPX_TRANSPORT_NCCL_LSA_WINDOW_H
#define EPX_TRANSPORT_NCCL_LSA_WINDOW_H

#include <epx.h>

#include <epx.h>
#include <nccl.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Writes where each rank's part of the window is mapped here; row is [num_ranks] device memory. */
int epx_lsa_resolve(ncclWindow_t window, void *own, int rank, int num_ranks, char **row,
                    EPX_Stream stream);
/* Loads the kernel of epx_lsa_resolve now: loaded later, it could wait for a kernel that waits. */
int epx_lsa_load(void);
/* How many ranks can load and store each other's windows, this one included, by the function
 * ncclTeamLsa of NCCL. */
int epx_lsa_reach(void *team_lsa, ncclComm_t comm);
/* Whether the headers that this was built with have what kernels read of a window in its usual
 * place: nccl_open.c. */
int epx_lsa_layout_is_known(void);
#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv.h - what the direct and the staged alltoallv share. */
#ifndef EPX_COLL_ALLTOALLV_H
#define EPX_COLL_ALLTOALLV_H

#include "core/request.h"

/*
 * First of all: from then on the four arrays of the call are own, [4][R], which is read as often as
 * need be; what happens to the user's meanwhile makes no rank store where it should not.
 */
void epx_alltoallv_copy_counts(struct epx_request *request, int64_t *own);
/* With recvcounts filled in: the displacements; tells both to the user, and whether the rows fit
 * the receive capacity. */
int epx_alltoallv_place(struct epx_request *request);
/* Completes it: EPX_ERR_TRUNCATE if they did not. */
int epx_alltoallv_finish(struct epx_request *request);

#endif

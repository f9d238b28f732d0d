/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv.h - what the direct and the staged alltoallv share. */
#ifndef EPX_COLL_ALLTOALLV_H
#define EPX_COLL_ALLTOALLV_H

#include "request.h"

/* With recvcounts filled in: the displacements; whether the rows fit the receive capacity. */
int epx_alltoallv_place(struct epx_request *request);
/* Completes it: EPX_ERR_TRUNCATE if they did not. */
int epx_alltoallv_finish(struct epx_request *request);

#endif

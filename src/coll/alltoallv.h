/* SPDX-License-Identifier: BSD-3-Clause */
/* alltoallv.h - what the direct and the staged alltoallv share, and what persistent ones keep. */
#ifndef EPX_COLL_ALLTOALLV_H
#define EPX_COLL_ALLTOALLV_H

#include "core/request.h"

/*
 * Has a persistent request use copies of its counts and displacements, in memory of the library: on
 * device memory they are made by work on the request's stream.
 */
int epx_alltoallv_keep_counts(struct epx_request *request);
/*
 * Called first: copies the counts and displacements of the call to own, which has room for two
 * numbers an edge at each end, and lets the call use the copy, which is read as often as need be.
 * So if the user changes the arrays meanwhile, no rank stores where it should not. Counts that are
 * kept are a copy already.
 */
void epx_alltoallv_copy_counts(struct epx_request *request, int64_t *own);
/* Makes as many steps of a ground as can be made at once, on its struct exchange of the request:
 * short operations end in the call that starts them. */
int epx_alltoallv_progress(const struct epx_request *request,
                           int (*step)(const void *exchange, int *moved), const void *exchange,
                           int *moved);
/* Called with recvcounts filled in: finds rdispls, copies both to the user's arrays and returns
 * whether the rows fit the receive capacity. */
int epx_alltoallv_place(struct epx_request *request);
/* What the request remembers of its partners; NULL = its counts are not fixed. */
static inline struct epx_fixed *epx_alltoallv_fixed(const struct epx_request *request)
{
    return request->call.kept ? request->call.kept->fixed : NULL;
}
/* Every source has told that it sends so many rows each time, and they fit: remembers that. */
void epx_alltoallv_learn(struct epx_request *request);
/* Completes the request: EPX_ERR_TRUNCATE if the rows did not fit. */
int epx_alltoallv_finish(struct epx_request *request);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* api_health.c - EPX_Comm_get_waits. */
#include "api/api.h"
#include "api/profile.h"
#include "core/comm.h"

EPX_PROFILED(Comm_get_waits)

/*
 * EPX_Comm_get_waits - get how long this rank has waited for each other one.
 *
 * Local; never waits for the GPU. Counts what operations of the communicator waited since it was
 * made, of those that wait now too.
 * Input: comm; waits->size, sizeof(EPX_Waits); waits->num_ranks, the elements of the arrays, 0 = as
 * many as ranks. In/out: waits: num_ranks, the ranks of comm; ns, [num_ranks] or NULL, nanoseconds
 * waited for each rank; operations, [num_ranks] or NULL, in how many operations this rank waited
 * longest for it.
 * Errors: EPX_ERR_COMM; EPX_ERR_ARG if waits is NULL or too small, or has arrays that are.
 * See also: EPX_Comm_get_stats.
 */
int EPX_Comm_get_waits(EPX_Comm comm, EPX_Waits *waits)
{
    int rc;

    EPX_API_ENTER();
    EPX_TRY(epx_api_comm(comm));
    epx_lock();
    rc = epx_waits_copy(&comm->waits, waits);
    epx_unlock();
    return epx_api_return(comm, rc);
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_nccl.c - a libnccl.so.2 that has every function that EPX looks for, and a version that
 * the environment tells. */
#include <stdlib.h>

#define PRETEND(name)                                                                              \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return 1;                                                                                  \
    }

PRETEND(ncclGetUniqueId)
PRETEND(ncclCommInitRankConfig)
PRETEND(ncclCommDestroy)
PRETEND(ncclCommAbort)
PRETEND(ncclGetErrorString)
PRETEND(ncclMemAlloc)
PRETEND(ncclMemFree)
PRETEND(ncclCommWindowRegister)
PRETEND(ncclCommWindowDeregister)
PRETEND(ncclGroupStart)
PRETEND(ncclGroupEnd)
PRETEND(ncclSend)
PRETEND(ncclRecv)

int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
    *version = atoi(getenv("PRETEND_NCCL_VERSION"));
    return *version == 0;
}

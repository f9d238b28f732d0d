/* SPDX-License-Identifier: BSD-3-Clause */
/* epx_moe_space_none.c - in place of epx_moe_space_cuda.c where there is no CUDA. */
#include "epx_moe_space.h"

const struct moe_space *moe_space_cuda(void)
{
    moe_fail("EPX_MEMORY is cuda:device, but this epx_moe was built without CUDA");
    return NULL;
}

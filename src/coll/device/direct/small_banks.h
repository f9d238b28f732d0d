/* SPDX-License-Identifier: BSD-3-Clause */
/* small_banks.h - how small operations travel through banks, and how many blocks they have. */
#ifndef EPX_COLL_DEVICE_DIRECT_SMALL_BANKS_H
#define EPX_COLL_DEVICE_DIRECT_SMALL_BANKS_H

#include "core/request.h"
#include "kernels/args/bank_args.h"

/* Whether a routing is small, which it is on all ranks alike. */
int epx_is_small_routing(const struct epx_request *request);
/* How rows go through banks that hold `width` rows a token, with `words` words each; none of it
 * unless the operation is small, which it is on all ranks alike. */
struct epx_banks epx_banks_of(const struct epx_request *request, int32_t width, int32_t words);

#endif

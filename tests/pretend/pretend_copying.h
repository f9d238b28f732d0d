/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_copying.h - the copies that waiting kernels make for the proxy, made without a GPU. */
#ifndef EPX_TESTS_PRETEND_COPYING_H
#define EPX_TESTS_PRETEND_COPYING_H

#include "kernels/copy_queues.h"

/* Makes copies that were asked for, in any order: some of them, or all. */
void pretend_make_copies(struct epx_copy_queues *queues, int all);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* twins_host.c - a build without CUDA has no device. */
#include "unit/kernels/twins.h"

static const char reason[] = "built without CUDA";

const char *twin_lacks(void)
{
    return reason;
}

const char *twin_run_on_device(enum twin_step step, int64_t n, const uint64_t *in, uint64_t *out)
{
    (void)step;
    (void)n;
    (void)in;
    (void)out;
    return reason;
}

const char *twin_sum_rows(const struct twin_rows *rows)
{
    (void)rows;
    return reason;
}

const char *twin_store_row(const struct twin_rows *rows)
{
    (void)rows;
    return reason;
}

const char *twin_sum_nodes(const struct twin_rows *rows)
{
    (void)rows;
    return reason;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* module_cuda.c - the entry of libepx_cuda: what it gives libepx, and takes from it. */
#include "coll/device/ground_device.h"
#include "transport/module.h"

const struct epx_module *epx_cuda_module(const struct epx_core *core);

const struct epx_module *epx_cuda_module(const struct epx_core *core)
{
    static const struct epx_module module = {
        .version = EPX_MODULE_VERSION,
        .transports = epx_transports,
        .direct = &epx_ground_device_direct,
        .staged = &epx_ground_device_staged,
    };

    epx_module_use(core);
    return &module;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* driver_call.h - calls of the CUDA driver, which the module is not linked with. */
#ifndef EPX_TRANSPORT_CUDA_DRIVER_CALL_H
#define EPX_TRANSPORT_CUDA_DRIVER_CALL_H

#include <cuda_runtime_api.h>

/* Finds a call by its name. */
cudaError_t epx_find_driver_call(const char *name, void **call);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* driver_call.h - calls of the CUDA driver, which the module is not linked with. */
#ifndef EPX_TRANSPORT_CUDA_DRIVER_CALL_H
#define EPX_TRANSPORT_CUDA_DRIVER_CALL_H

#include <cuda_runtime_api.h>

/* The CUDA whose form of a call is wanted, for calls that all have. */
enum { EPX_ANY_DRIVER = 11070 };

/* Finds a call by its name, in the form that it had in a version of CUDA. */
cudaError_t epx_find_driver_call(const char *name, unsigned version, void **call);

#endif

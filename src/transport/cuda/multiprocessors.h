/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * multiprocessors.h - how many multiprocessors kernels can have: of the device, or of a green
 * context, which is a part of a device. The blocks of a kernel that waits must all run at once.
 */
#ifndef EPX_TRANSPORT_CUDA_MULTIPROCESSORS_H
#define EPX_TRANSPORT_CUDA_MULTIPROCESSORS_H

#include <cuda_runtime_api.h>

/* Counts the multiprocessors of a device, which is current, or of the current green context. */
cudaError_t epx_count_sms(int ordinal, int *sms);

/* Whether the handle stands for a stream of whichever context is current. */
static inline int epx_is_default_stream(cudaStream_t stream)
{
    return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/* Returns the multiprocessors of the green context that a stream is of, at most `all`; returns all
 * for another stream, and if CUDA does not tell. The stream is in no capture. */
int epx_count_stream_sms(cudaStream_t stream, int all);

#endif

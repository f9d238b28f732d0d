/* SPDX-License-Identifier: BSD-3-Clause */
/* errors.h - the last error of each thread. */
#ifndef ERRORS_H
#define ERRORS_H

#include <cuda_runtime_api.h>

/* Notes an error, and returns it. */
cudaError_t errors_note(cudaError_t error);

#endif

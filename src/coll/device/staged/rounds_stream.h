/* SPDX-License-Identifier: BSD-3-Clause */
/* rounds_stream.h - the stream that the rounds of an operation by messages are queued on. */
#ifndef EPX_COLL_DEVICE_STAGED_ROUNDS_STREAM_H
#define EPX_COLL_DEVICE_STAGED_ROUNDS_STREAM_H

#include "core/request.h"

struct epx_device;

/* Local: the communicator's stream for rounds. Freeing takes what was not made. */
int epx_rounds_create(struct epx_device *device);
void epx_rounds_free(struct epx_device *device);

/* Sets *stream to where so many rounds are queued; epx_rounds_end is called behind the last. */
int epx_rounds_begin(const struct epx_request *request, int64_t num, EPX_Stream *stream);
int epx_rounds_end(const struct epx_request *request, EPX_Stream stream);

#endif

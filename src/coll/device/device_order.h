/* SPDX-License-Identifier: BSD-3-Clause */
/* device_order.h - the order of operations across streams and captures. */
#ifndef EPX_COLL_DEVICE_DEVICE_ORDER_H
#define EPX_COLL_DEVICE_DEVICE_ORDER_H

#include "coll/device/device.h"

int epx_device_init_order(struct epx_device *device);
void epx_device_end_order(struct epx_device *device);

/* EPX_ERR_ARG for a stream of another device. To ask one in a capture would end the capture. */
int epx_device_check_stream(const struct epx_device *device, EPX_Stream stream);
/* The stream's capture, 0 if it has none. */
int epx_device_find_capture(EPX_Stream stream, unsigned long long *capture);
/* The stream waits for the operation before; what is queued then is the next. */
int epx_device_queue_behind(struct epx_device *device, EPX_Stream stream,
                            unsigned long long capture);
/* The operation is queued; in a capture its event is recorded. */
int epx_device_queue_end(struct epx_device *device, const struct epx_request *request,
                         unsigned long long capture);
/* The stream waits for the operation. */
int epx_device_queue_wait(const struct epx_device *device, const struct epx_request *request,
                          EPX_Stream stream);

/* Chunks of tokens, 0 where the blocks that wait do all; route constants alone decide. */
int32_t epx_device_chunks(const struct epx_request *request);
/* Stores args->chunks chunks on the operation's stream and spreads all but the last, which has
 * arrived when the stream gets there, on a stream beside. */
int epx_device_queue_chunks(const struct epx_request *request,
                            const struct epx_dispatch_rows *args);

#endif

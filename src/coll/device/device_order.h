/* SPDX-License-Identifier: BSD-3-Clause */
/* device_order.h - the order of operations across streams and captures. */
#ifndef EPX_COLL_DEVICE_DEVICE_ORDER_H
#define EPX_COLL_DEVICE_DEVICE_ORDER_H

#include "coll/device/device.h"

int epx_device_init_order(struct epx_device *device);
void epx_device_end_order(struct epx_device *device);

/* EPX_ERR_ARG for a stream of another device, or with too few multiprocessors; else finds the
 * stream's id. Not for a stream in a capture: to ask it would end the capture. */
int epx_device_check_stream(const struct epx_device *device, EPX_Stream stream,
                            unsigned long long *id);
/* The stream's capture, 0 if it has none. */
int epx_device_find_capture(EPX_Stream stream, unsigned long long *capture);
/* Makes the stream wait for the operation before; what is queued then is the next operation. `id`
 * is what epx_device_check_stream found; in a capture it means nothing. */
int epx_device_queue_behind(struct epx_device *device, EPX_Stream stream,
                            unsigned long long capture, unsigned long long id);
/* Called when an operation is queued: notes it for the next; in a capture, records its event. */
int epx_device_queue_end(struct epx_device *device, const struct epx_request *request,
                         unsigned long long capture);
/* Makes the stream wait for the operation. */
int epx_device_queue_wait(const struct epx_device *device, const struct epx_request *request,
                          EPX_Stream stream);

#endif

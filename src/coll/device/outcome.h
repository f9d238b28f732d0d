/* SPDX-License-Identifier: BSD-3-Clause */
/* outcome.h - how an operation on device memory ended, as code and text. */
#ifndef EPX_COLL_DEVICE_OUTCOME_H
#define EPX_COLL_DEVICE_OUTCOME_H

#include "coll/device/device.h"

/* Returns the code of an outcome and sets its message; request is NULL in a replayed graph. */
int epx_outcome_report(struct epx_device *device, const struct epx_request *request,
                       const struct epx_outcome *outcome);
/* The error of an operation in a replayed graph that no one has been told of. */
int epx_outcome_take_replay_error(struct epx_device *device);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* operation_args.h - the way of an operation, and what its kernels are given. */
#ifndef EPX_COLL_DEVICE_OPERATION_ARGS_H
#define EPX_COLL_DEVICE_OPERATION_ARGS_H

#include "coll/tuning.h"
#include "core/request.h"
#include "kernels/args/device_comm.h"
#include "kernels/args/ready_note.h"
#include "kernels/device_plan.h"

struct epx_device_comm epx_device_comm_of(const struct epx_request *request);
struct epx_ready_note epx_ready_note_of(const struct epx_request *request);
struct epx_list_note epx_list_note_of(const struct epx_request *request);

/* Whether other ranks can store into all receive buffers of the call. */
int epx_takes_stores(const struct epx_request *request);
/* How rows go through the stages in messages, where `words` words follow a row. */
struct epx_rounds epx_message_rounds_of(const struct epx_request *request, int32_t words);

/* Decides the way of an operation, or of its half that is under way, and keeps it in the device
 * until the next operation is queued: the kernels of a second phase go the same way. */
const struct epx_way *epx_decide_way(const struct epx_request *request);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* operation_args.h - what the kernels of an operation are given. */
#ifndef EPX_COLL_DEVICE_OPERATION_ARGS_H
#define EPX_COLL_DEVICE_OPERATION_ARGS_H

#include "core/request.h"
#include "kernels/args/device_comm.h"
#include "kernels/args/ready_note.h"
#include "kernels/device_plan.h"

struct epx_device_comm epx_device_comm_of(const struct epx_request *request);
struct epx_ready_note epx_ready_note_of(const struct epx_request *request);
struct epx_list_note epx_list_note_of(const struct epx_request *request);

/* Whether other ranks can store into all receive buffers of the call. */
int epx_takes_stores(const struct epx_request *request);

#endif

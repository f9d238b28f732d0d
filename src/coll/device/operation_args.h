/* SPDX-License-Identifier: BSD-3-Clause */
/* operation_args.h - what every kernel of an operation is given. */
#ifndef EPX_COLL_DEVICE_OPERATION_ARGS_H
#define EPX_COLL_DEVICE_OPERATION_ARGS_H

#include "core/request.h"
#include "kernels/args/device_comm.h"
#include "kernels/args/mover_args.h"
#include "kernels/args/ready_note.h"
#include "kernels/device_plan.h"

struct epx_device_comm epx_device_comm_of(const struct epx_request *request);
struct epx_ready_note epx_ready_note_of(const struct epx_request *request);
struct epx_list_note epx_list_note_of(const struct epx_request *request);

/* How rows of an operation go through a stage that holds `width` rows a token. */
struct epx_rounds epx_rounds_of(int64_t row_bytes, int32_t width, int32_t max_tokens,
                                int64_t stage_bytes);
/* How a dispatch, a combine backward, or one of the other two is shared out between blocks that
 * send and blocks that take. */
struct epx_movers epx_row_movers_of(const struct epx_request *request);
struct epx_movers epx_grad_movers_of(const struct epx_request *request);
struct epx_movers epx_sum_movers_of(const struct epx_request *request);
/* How rows go through the stages in messages, where `words` words follow a row. */
struct epx_rounds epx_message_rounds_of(const struct epx_request *request, int32_t words);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/* control_args.h - arguments and launchers of the kernels that move no rows. */
#ifndef EPX_KERNELS_ARGS_CONTROL_ARGS_H
#define EPX_KERNELS_ARGS_CONTROL_ARGS_H

#include "kernels/args/device_comm.h"
#include "kernels/args/ready_note.h"

/* Arguments of announce_end, by which a host ends the communicator. The kernel reads rank,
 * num_ranks and control of comm; with --enable-jitter also state and jitter_seed. */
struct epx_announce_end {
    struct epx_device_comm comm;
    const char *reason; /* pinned, EPX_MAX_ERROR_STRING bytes */
    uint64_t *verdict;  /* pinned; the abort word that all ranks have then */
};

/* Arguments of agree, and of agree_by_messages, which comes before every operation by messages. */
struct epx_agree {
    struct epx_device_comm comm;
    struct epx_ready_note note;
    struct epx_list_note list;   /* several fields; messages need none */
    int32_t listed;              /* whether there is a list */
    int32_t stands;              /* whether the operation stands on the routing */
    struct epx_outcome *routing; /* of the route, or NULL */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Launchers return EPX_SUCCESS, or EPX_ERR_CUDA with the error left to cudaGetLastError. */
int epx_launch_announce_end(const struct epx_announce_end *args, EPX_Stream stream);
int epx_launch_agree(const struct epx_agree *args, EPX_Stream stream);
int epx_launch_agree_by_messages(const struct epx_agree *args, EPX_Stream stream);
int epx_launch_await_messages(const struct epx_device_comm *comm, EPX_Stream stream);
#ifdef __cplusplus
}
#endif

#endif

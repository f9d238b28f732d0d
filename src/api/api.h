/* SPDX-License-Identifier: BSD-3-Clause */
/* api.h - what every public function does first and last. */
#ifndef EPX_API_API_H
#define EPX_API_API_H

#include "core/request.h"
#include "core/route.h"

/* First: names the function in messages; EPX_ERR_NOT_INITIALIZED where MPI does not work. */
#define EPX_API_ENTER() EPX_TRY(epx_api_enter(__func__))
int epx_api_enter(const char *function);

/* Last: hands an error, with this thread's message, to the communicator's error handler. */
int epx_api_return(struct epx_comm *comm, int error);

/* Registers the error codes with MPI, and the hook that frees leftovers at MPI_Finalize. */
int epx_api_setup(void);
/* Free what a communicator holds: a segment is freed locally; to free the communicator may mean to
 * wait for peers, unless it is finished. */
void epx_api_free_segment(struct epx_comm *comm, struct epx_segment *segment);
void epx_api_free_comm(struct epx_comm *comm);

/* A buffer that a call was given. */
struct epx_buffer {
    const char *name;
    const void *address;
    int64_t rows;
    int64_t row_bytes;
    int written;
    int required; /* may not be NULL unless it is empty */
};
/* EPX_ERR_BUFFER for MPI_IN_PLACE, for NULL, for memory of another space than the communicator's,
 * and where a written buffer shares a byte. */
int epx_check_buffers(const struct epx_comm *comm, const struct epx_buffer *buffers, int num);

#endif

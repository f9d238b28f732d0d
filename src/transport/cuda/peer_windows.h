/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer_windows.h - windows of device memory that kernels of all ranks store into, for the
 * transports that map them.
 */
#ifndef EPX_TRANSPORT_CUDA_PEER_WINDOWS_H
#define EPX_TRANSPORT_CUDA_PEER_WINDOWS_H

#include <cuda_runtime_api.h>

#include "core/comm.h"

/*
 * How a transport maps windows. Its state begins with its struct epx_peer_windows; all calls are on
 * the communicator's device.
 */
struct epx_peer_windows_ops {
    size_t granule_bytes; /* windows are multiples of it */
    /* At the start: prepare, local, makes what windows need; then connect, collective and agreed,
     * NULL = nothing to do. */
    int (*prepare)(void *state);
    int (*connect)(void *state);
    /* At the end, local: undoes connect, if that was done; NULL = nothing to do. */
    void (*disconnect)(void *state);
    /* Local: allocates this rank's part, window->own. */
    int (*allocate)(void *state, size_t bytes, struct epx_window *window);
    /* Collective, agreed: shows the part to the other ranks. */
    int (*show)(void *state, size_t bytes, struct epx_window *window);
    /* Local: fills window->address. */
    int (*map)(void *state, struct epx_window *window);
    /* Local: undoes map, or some of it, before any rank frees its part; NULL = free does. */
    int (*unmap)(void *state, struct epx_window *window);
    /* Local, on all ranks in the same order: undoes allocate, show and map, as far as they came. */
    void (*free)(void *state, struct epx_window *window);
};

struct epx_peer_windows {
    const struct epx_peer_windows_ops *ops;
    struct epx_comm *comm;
    int ordinal; /* of the GPU */
    cudaStream_t stream;
    char **table; /* [MOST_WINDOWS][R] device memory */
    int next_number;
    struct epx_window *in_use;     /* not freed yet */
    struct epx_window *laid_aside; /* by number */
};

/* Collective, agreed. Uses the current device. */
int epx_peer_windows_open(void *state, struct epx_comm *comm,
                          const struct epx_peer_windows_ops *ops);
/* Takes a state that was only half opened; collective if windows were made. */
void epx_peer_windows_close(void *state);
/* Operations of struct epx_transport_ops. */
int epx_peer_windows_create(void *state, size_t own_bytes, struct epx_window **result);
void epx_peer_windows_free(void *state, struct epx_window *window);
void epx_peer_windows_reclaim(void *state);
int epx_peer_windows_leave(void *state);

#endif

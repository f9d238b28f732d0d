/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * proxy.h - the thread of a communicator that moves messages between device memories when kernels
 * ask for it, so that the threads of the user never wait for the GPU. kernels/ring.h has the
 * protocol.
 */
#ifndef EPX_COLL_DEVICE_STAGED_PROXY_H
#define EPX_COLL_DEVICE_STAGED_PROXY_H

#include <cuda_runtime_api.h>
#include <stdint.h>

struct epx_copy_queues;
struct epx_device;
struct epx_proxy;

/* Local: starts the thread, on the current device. */
int epx_proxy_create(const struct epx_device *device, struct epx_proxy **proxy);
/* Local: waits some seconds for the thread to end, and returns whether it has; takes NULL. With a
 * finished communicator the thread ends by itself as soon as the transport has aborted what hangs.
 * The memory stays. */
int epx_proxy_retire(struct epx_proxy *proxy);
/* Local; only when no kernel is in flight. */
void epx_proxy_free(struct epx_proxy *proxy);
/* Local: ends the kernels that wait for messages, and those that will. */
void epx_proxy_stop_kernels(struct epx_proxy *proxy);
/* Local; called when an operation, or a wait for one, is queued on the stream: warns once of the
 * legacy default stream if there is a proxy and it calls CUDA. */
void epx_proxy_note_stream(struct epx_proxy *proxy, cudaStream_t stream);
/* Why the proxy gave up, for as long as it lives; NULL = it did not, or there is none. */
const char *epx_proxy_failure(const struct epx_proxy *proxy);
/* For kernels: pinned memory, and a word of device memory, or where they make the copies of the
 * exchanges, pinned memory; the other one of the last two is NULL. */
char *epx_proxy_ring(const struct epx_proxy *proxy);
const uint64_t *epx_proxy_released(const struct epx_proxy *proxy);
struct epx_copy_queues *epx_proxy_copies(const struct epx_proxy *proxy);

#endif

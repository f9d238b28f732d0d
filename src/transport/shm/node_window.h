/* SPDX-License-Identifier: BSD-3-Clause */
/* node_window.h - memory that the ranks of a node share: each has a part, which all of them map. */
#ifndef EPX_TRANSPORT_SHM_NODE_WINDOW_H
#define EPX_TRANSPORT_SHM_NODE_WINDOW_H

#include "core/comm.h"

/* Collective over all nodes, agreed: addresses of ranks of other nodes stay NULL. */
int epx_node_window_create(struct epx_comm *comm, size_t own_bytes, struct epx_window **window);
/* Local; takes NULL. */
void epx_node_window_free(const struct epx_comm *comm, struct epx_window *window);

/* Whether the rank is on this rank's node. */
int epx_node_shared(const struct epx_comm *comm, int rank);

/* Local: puts private memory with the same bytes in the place of this rank's part, and unmaps the
 * rest, so that stores of others go where nobody looks. Nobody may use the memory meanwhile. */
int epx_node_window_fence(struct epx_window *window);

#endif

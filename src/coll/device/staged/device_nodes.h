/* SPDX-License-Identifier: BSD-3-Clause */
/* device_nodes.h - who relays rows on device memory where nodes have several ranks. */
#ifndef EPX_COLL_DEVICE_STAGED_DEVICE_NODES_H
#define EPX_COLL_DEVICE_STAGED_DEVICE_NODES_H

#include "core/comm.h"
#include "kernels/device_plan.h"

/* Whether rows cross to another node once, by relays; for ranks that exchange messages. */
int epx_device_relays(const struct epx_comm *comm);
/* The numbers for a route of top_k choices; the tables stay NULL. Without relays num_nodes is 0,
 * and the width is the number of ranks. */
struct epx_device_nodes epx_device_nodes_of(const struct epx_comm *comm, int32_t top_k);

/* Words of the tables that kernels look up. */
int64_t epx_device_nodes_words(const struct epx_comm *comm);
/* Fills the tables on the host, and points nodes to where they lie on the device, from `at` on. */
void epx_device_nodes_fill(const struct epx_comm *comm, struct epx_device_nodes *nodes,
                           int32_t *table, const int32_t *at);

#endif

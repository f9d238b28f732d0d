/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx_links.h - a UCX worker of a communicator with an endpoint to every other rank: messages,
 * memory that ranks of a node map, and letters. Whoever calls holds the lock, or has the
 * communicator alone because it is being made or freed.
 */
#ifndef EPX_TRANSPORT_UCX_UCX_LINKS_H
#define EPX_TRANSPORT_UCX_UCX_LINKS_H

#include "transport/transport.h"

struct epx_links;

/* ucx_connect.c */
/* Collective, agreed: *links stays NULL or half-built on error, free takes both. */
int epx_links_create(struct epx_comm *comm, struct epx_links **links);
/* Local; bounded, whether the peers live or not. */
void epx_links_free(struct epx_links *links);

/* ucx_memory.c */
/*
 * Collective, agreed, once: allocates zeroed memory, the same number of bytes on all ranks, at
 * *own. address[r] becomes where the memory of rank r is mapped here, NULL if rank r and this one
 * do not store into each other's memory. The memory stays until the links are freed.
 */
int epx_links_share(struct epx_links *links, size_t bytes, char **own, char **address);

/* ucx_messages.c */
/* Sends one message to each rank for each number; data must stay until nothing is in flight. A link
 * that fails is marked as lost, and the next beat tells of it. */
void epx_links_send(struct epx_links *links, int rank, uint64_t number, const void *data,
                    size_t bytes);
/* Says where the message of this number from rank goes, after the own one of this number was sent
 * there. */
void epx_links_expect(struct epx_links *links, int rank, uint64_t number, void *data, size_t bytes);
/* Whether the message that is expected from rank has been put where it goes. */
int epx_links_receive(struct epx_links *links, int rank);
int epx_links_in_flight(const struct epx_links *links);

/* ucx_liveness.c */
/* The operations on a struct epx_links; beat also moves the messages on. */
extern const struct epx_liveness_ops epx_links_liveness;

#endif

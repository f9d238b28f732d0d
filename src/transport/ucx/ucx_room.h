/* SPDX-License-Identifier: BSD-3-Clause */
/* ucx_room.h - whether the process may still have what UCX takes. */
#ifndef EPX_TRANSPORT_UCX_UCX_ROOM_H
#define EPX_TRANSPORT_UCX_UCX_ROOM_H

#include "core/comm.h"

/* Local: whether there is room for the context, worker and endpoints of a communicator; if not, why
 * tells what is short and what to set. */
int epx_ucx_has_room(const struct epx_comm *comm, char *why);

#endif

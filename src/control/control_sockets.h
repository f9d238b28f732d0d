/* SPDX-License-Identifier: BSD-3-Clause */
/* control_sockets.h - a control plane by sockets, once all ranks are connected (contact.h). */
#ifndef EPX_CONTROL_CONTROL_SOCKETS_H
#define EPX_CONTROL_CONTROL_SOCKETS_H

#include "control/connections.h"
#include "control/control.h"

struct epx_sockets;

/* Local: without a connection yet. The control plane frees it; free takes NULL. */
int epx_sockets_create(int rank, int size, struct epx_sockets **sockets);
void epx_sockets_free(struct epx_sockets *sockets);
struct epx_connections *epx_sockets_connections(struct epx_sockets *sockets);

/* Its state is a struct epx_sockets. */
extern const struct epx_control_ops epx_control_sockets;

#endif

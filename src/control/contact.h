/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * contact.h - how ranks that know nothing but an allgather come to be connected, each with every
 * other.
 */
#ifndef EPX_CONTROL_CONTACT_H
#define EPX_CONTROL_CONTACT_H

#include "control/connections.h"

/* The ranks, and what makes the first contact: as MPI_Allgather of bytes, 0 = success. */
struct epx_contact_group {
    int rank, size;
    int (*allgather)(const void *own, void *all, size_t bytes, void *arg);
    void *arg;
    int is_own; /* the library's: what it returns is an error of EPX, which has its message */
};

struct epx_contact;

/* Local: opens this rank's door for its own machine. Where that fails there is a contact
 * nevertheless, by which this rank tells the others of the error, if there is memory for one. */
int epx_contact_open(const struct epx_contact_group *group, struct epx_connections *connections,
                     struct epx_contact **contact);
/*
 * Collective: the ranks tell each other where their doors are, by one or two allgathers. Each rank
 * that comes to the end hears of own_rc, its result so far, and of an error on any other rank.
 * `interface`: see addresses.h.
 */
int epx_contact_tell(struct epx_contact *contact, const char *interface, int own_rc);
/*
 * Does not block: sets *done once connections to all ranks are made, or cannot be made: the result
 * is told then. *awaited is a rank that is not connected yet. Other ranks may knock until the
 * contact is freed.
 */
int epx_contact_done(void *contact, int *done, int *awaited);
int epx_contact_result(const struct epx_contact *contact);
/* Tells the ranks that are connected, or soon will be, of the error `code`, for which this rank
 * does not go on; closes all connections. It is this thread's last error afterwards. */
void epx_contact_give_up(struct epx_contact *contact, int code, const char *message);
/* Takes NULL. */
void epx_contact_free(struct epx_contact *contact);

#endif

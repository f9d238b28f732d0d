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

/*
 * Collective: opens this rank's doors and tells the others where they are, by one or two
 * allgathers. Each rank that comes to the end hears of own_rc, and of an error on any other rank.
 * The doors stay open, and the others may knock, until the contact is freed. `interface`: see
 * addresses.h.
 */
int epx_contact_create(const struct epx_contact_group *group, const char *interface, int own_rc,
                       struct epx_connections *connections, struct epx_contact **contact);
/* Does not block: sets *done once connections to all ranks are made; *awaited is a rank that is
 * not connected yet. */
int epx_contact_done(void *contact, int *done, int *awaited);
/* Takes NULL. */
void epx_contact_free(struct epx_contact *contact);

#endif

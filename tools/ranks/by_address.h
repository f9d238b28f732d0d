/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * by_address.h - the first contact of ranks that have nothing but what torchrun tells them: RANK,
 * WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Rank 0 listens at the port after MASTER_PORT, at which
 * torchrun may serve a store of its own.
 */
#ifndef EPX_TOOLS_BY_ADDRESS_H
#define EPX_TOOLS_BY_ADDRESS_H

#include <stddef.h>

struct by_address;

/* Whether the four variables are set and torchrun set them, or at least no launcher of MPI is
 * there. */
int by_address_is_wanted(void);

/*
 * Collective: connects every rank with rank 0. NULL if that fails; the rank has then said why, in
 * the name of `program`. A wait for other ranks lasts EPX_TIMEOUT_MS, a minute if that is unset.
 */
struct by_address *by_address_open(const char *program);
int by_address_rank(const struct by_address *ranks);
int by_address_size(const struct by_address *ranks);
/* Collective, as MPI_Allgather of bytes: 0, or 1, having said why. `ranks` is a by_address. */
int by_address_allgather(const void *own, void *all, size_t bytes, void *ranks);
void by_address_close(struct by_address *ranks);

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * board.h - memory of one machine that all ranks of MPI_COMM_WORLD map, for what they tell each
 * other while a rank is dead or stopped: MPI is of no use then.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>

/* Collective: zeroed memory. It is in a file that has no name any more when this returns. */
void *board_open(size_t bytes);

#endif

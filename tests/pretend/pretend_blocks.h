/* SPDX-License-Identifier: BSD-3-Clause */
/* pretend_blocks.h - memory that other processes can map while its owner runs, by a name. */
#ifndef PRETEND_BLOCKS_H
#define PRETEND_BLOCKS_H

#include <stddef.h>

enum { PRETEND_NAME_BYTES = 64 };

/* Memory of this process: NULL if there is none. */
void *pretend_block_make(size_t bytes);
/* Memory that a process has made, by the name that it has there: NULL if there is none. */
void *pretend_block_open(const char *name);
/* Tells of memory that this process has made: its size, and its name. Returns 0 if it is none. */
int pretend_block_look(const void *memory, size_t *bytes, char name[PRETEND_NAME_BYTES]);
/* Gives memory back that this process has made, or opened. Returns -1 if it is none, else how many
 * processes have it open. */
int pretend_block_free(void *memory);
int pretend_block_close(void *memory);
/* How many blocks there are that this process has made, or opened. */
int pretend_block_count(int is_own);

#endif

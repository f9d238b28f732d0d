/* SPDX-License-Identifier: BSD-3-Clause */
/* info_waits.h - for epx_info: who waited for whom, from a file of EPX_TRACE. */
#ifndef EPX_TOOLS_INFO_WAITS_H
#define EPX_TOOLS_INFO_WAITS_H

/* Prints a matrix for each communicator that the file tells of. Returns 0, or 1 having said what is
 * wrong with the file. */
int info_waits(const char *file);

#endif

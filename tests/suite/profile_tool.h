/* SPDX-License-Identifier: BSD-3-Clause */
/* profile_tool.h - what test_profiling asks of the tool that is preloaded. */
#ifndef PROFILE_TOOL_H
#define PROFILE_TOOL_H

/* Calls of a public function that the tool saw since it was last asked; -1 if it counts none. */
int tool_calls(const char *function);

#endif

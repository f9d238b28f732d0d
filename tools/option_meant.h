/* SPDX-License-Identifier: BSD-3-Clause */
/* option_meant.h - which option was meant by one that a tool does not have. */
#ifndef EPX_TOOLS_OPTION_MEANT_H
#define EPX_TOOLS_OPTION_MEANT_H

#include <getopt.h>

/* Says the option that was meant by an argument that getopt_long refused, if it is like one. */
void option_say_meant(const char *tool, const char *argument, const struct option *options);

#endif

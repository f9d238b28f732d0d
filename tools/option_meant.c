/* SPDX-License-Identifier: BSD-3-Clause */
/* option_meant.c - says the long option that is most like a wrong one. */
#include "option_meant.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

enum { MOST_OPTIONS = 64 };

void option_say_meant(const char *tool, const char *argument, const struct option *options)
{
    const char *names[MOST_OPTIONS + 1] = {NULL}, *meant;
    size_t length = strcspn(argument, "=");
    int num = 0;

    if (strncmp(argument, "--", 2) != 0)
        return;
    for (; options->name && num < MOST_OPTIONS; options++)
        names[num++] = options->name;
    meant = epx_find_meant(argument + 2, length - 2, names);
    if (meant && strncmp(meant, argument + 2, length - 2) != 0)
        fprintf(stderr, "%s: did you mean --%s?\n", tool, meant);
}

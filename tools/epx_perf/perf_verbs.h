/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_verbs.h - the list of sub-commands. */
#ifndef EPX_PERF_VERBS_H
#define EPX_PERF_VERBS_H

struct perf_verb;

/* NULL if there is no sub-command of that name. */
const struct perf_verb *perf_verb_find(const char *name);
/* The names of all, ended by NULL. */
enum { PERF_MOST_VERBS = 16 };
void perf_verb_names(const char *names[PERF_MOST_VERBS + 1]);

#endif

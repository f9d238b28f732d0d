/* SPDX-License-Identifier: BSD-3-Clause */
/* perf_verbs.h - the list of sub-commands. */
#ifndef EPX_PERF_VERBS_H
#define EPX_PERF_VERBS_H

struct perf_verb;

/* NULL if there is no sub-command of that name. */
const struct perf_verb *perf_verb_find(const char *name);

#endif

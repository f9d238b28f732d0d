/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_kinds.h - the list of the kinds of peer that this build has, by their names. */
#ifndef EPX_PERF_PEER_KINDS_H
#define EPX_PERF_PEER_KINDS_H

struct perf_options;
struct perf_peer_kind;
struct perf_space;

/* The first kind of that name; NULL if there is none. */
const struct perf_peer_kind *perf_peer_find(const char *name);
/* The kind of the same name that works on that memory; `peer` itself if there is none. */
const struct perf_peer_kind *perf_peer_on(const struct perf_peer_kind *peer,
                                          const struct perf_space *space);
/* "none" if kind is NULL. */
const char *perf_peer_name(const struct perf_peer_kind *kind);
/* Whether the peer has learned the counts of rows before: it has one routing. */
int perf_peer_is_counted(const struct perf_peer_kind *kind);
/* NULL if the peer of these options can do what they ask for; if not, why not. */
const char *perf_peer_refuses(const struct perf_options *options);

#endif

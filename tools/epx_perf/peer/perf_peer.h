/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf_peer.h - a peer: the same result without EPX. Every call is collective but free, scale,
 * poison and the calls that look at results.
 */
#ifndef EPX_PERF_PEER_H
#define EPX_PERF_PEER_H

#include <stdint.h>

struct perf_bench;
struct perf_peer;
struct perf_peer_kind;

/* Once in a run: 0, or -1 on all ranks, one of them having said why. */
int perf_peer_open(const struct perf_peer_kind *kind);
void perf_peer_close(const struct perf_peer_kind *kind);
/* NULL on all ranks if this kind of peer cannot do the load, rank 0 having said so. */
struct perf_peer *perf_peer_create(struct perf_bench *bench);
void perf_peer_free(struct perf_peer *peer);
/* Learns, untimed, the counts that the timed operations need. */
void perf_peer_learn(struct perf_peer *peer);
void perf_peer_route(struct perf_peer *peer);
void perf_peer_dispatch(struct perf_peer *peer);
void perf_peer_combine(struct perf_peer *peer);
void perf_peer_route_dispatch(struct perf_peer *peer);
void perf_peer_layer(struct perf_peer *peer);
void perf_peer_alltoallv(struct perf_peer *peer);
/* Multiplies the rows of each expert here by its factor. */
void perf_peer_scale(struct perf_peer *peer);
/* Overwrites outputs, so that a row that is not written again shows. */
void perf_peer_poison(struct perf_peer *peer, int rows, int sums);
/* Lets the host see outputs: the calls below look at what this one brought. */
void perf_peer_fetch(struct perf_peer *peer, int rows, int sums);
int64_t perf_peer_num_rows(const struct perf_peer *peer);
const char *perf_peer_rows(const struct perf_peer *peer);
const char *perf_peer_sums(const struct perf_peer *peer);
/* The received row of the pair that stands i-th by (expert, source, token, choice). */
const char *perf_peer_row(const struct perf_peer *peer, int64_t i);

#endif

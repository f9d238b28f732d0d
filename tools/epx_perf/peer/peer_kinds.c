/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_kinds.c - the list of peers: it alone asks whether there are CUDA and NCCL. */
#include "epx_perf/peer/peer_kinds.h"

#include <string.h>

#include "config.h"
#include "epx_perf/bench/perf_verb.h"
#include "epx_perf/peer/peer_steps.h"
#include "ranks/ranks.h"

/* The kernel that sorts pairs counts them in shared memory. */
enum { CUDA_MOST_EXPERTS = 8192 };

static const struct perf_peer_kind kinds[] = {
    {.name = "mpi", .steps = &perf_peer_mpi, .memory = "host", .by_mpi = 1},
    {.name = "mpi-blocks",
     .steps = &perf_peer_mpi,
     .memory = "host",
     .by_mpi = 1,
     .blocks_only = 1},
#if HAVE_CUDA
    {.name = "mpi",
     .steps = &perf_peer_staged,
     .memory = "cuda",
     .by_mpi = 1,
     .most_experts = CUDA_MOST_EXPERTS},
#endif
#if HAVE_NCCL
    {.name = "nccl", .steps = &perf_peer_nccl, .memory = "cuda", .most_experts = CUDA_MOST_EXPERTS},
    {.name = "nccl-counted",
     .steps = &perf_peer_nccl,
     .memory = "cuda",
     .counted = 1,
     .most_experts = CUDA_MOST_EXPERTS},
    {.name = "nccl-alltoall",
     .steps = &perf_peer_nccl_alltoall,
     .memory = "cuda",
     .counted = 1,
     .even = 1},
#endif
    {.name = NULL},
};

const struct perf_peer_kind *perf_peer_find(const char *name)
{
    for (const struct perf_peer_kind *kind = kinds; kind->name; kind++)
        if (strcmp(kind->name, name) == 0)
            return kind;
    return NULL;
}

const struct perf_peer_kind *perf_peer_on(const struct perf_peer_kind *peer,
                                          const struct perf_space *space)
{
    for (const struct perf_peer_kind *kind = kinds; kind->name; kind++)
        if (strcmp(kind->name, peer->name) == 0 && strcmp(kind->memory, space->name) == 0)
            return kind;
    return peer;
}

const char *perf_peer_name(const struct perf_peer_kind *kind)
{
    return kind ? kind->name : "none";
}

int perf_peer_is_counted(const struct perf_peer_kind *kind)
{
    return kind && kind->counted;
}

const char *perf_peer_refuses(const struct perf_options *options)
{
    const struct perf_peer_kind *kind = options->peer;
    const struct perf_verb *verb = options->verb;

    if (!verb->peer)
        return "it does not go backward";
    if (kind->by_mpi && !ranks_by_mpi())
        return "MPI did not start these ranks";
    if (strcmp(kind->memory, options->space->name) != 0)
        return strcmp(kind->memory, "host") == 0 ? "it works on host memory" : "it needs -d cuda";
    if (options->layout == EPX_RANK_MAJOR)
        return "it works by experts: it needs -l expert or slab";
    if (verb->sums && options->datatype == EPX_FLOAT16)
        return "it adds bfloat16, float32 and float64 alone";
    if (kind->even && !verb->by_pairs)
        return "it is for alltoallv";
    if (kind->counted && !verb->spreads && !verb->gathers)
        return "a route is what it leaves out";
    if (kind->most_experts && options->experts > kind->most_experts)
        return "it sorts by 8192 experts at most";
    return NULL;
}

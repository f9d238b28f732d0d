/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dispatch_staged.c - dispatch by messages: rows are packed by rank in record order, exchanged
 * with the counts of the routing, and unpacked by the records, block by block.
 */
#include "coll/staged/staged.h"
#include "coll/verbs.h"

enum { NEXT = EPX_PHASE_VERB, PACK, EXCHANGE };

static int pack(struct epx_staged *staged, struct epx_request *request, int *moved)
{
    if (!epx_staged_claim(staged, EPX_TO_EXPERTS))
        return EPX_SUCCESS;
    *moved = 1;
    request->phase = EXCHANGE;
    epx_pack_rows_host(staged->plan, &staged->home, &staged->block);
    return epx_staged_send(staged, EPX_TO_EXPERTS);
}

static void unpack(struct epx_staged *staged, struct epx_request *request)
{
    request->phase = NEXT;
    epx_unpack_rows_host(staged->plan, &staged->expert, &staged->block);
}

int epx_dispatch_staged(struct epx_request *request, int *moved)
{
    struct epx_staged *staged = epx_staged_of(request);
    int weighted;

    switch (request->phase) {
    case NEXT: *moved = 1; return epx_staged_next_block(staged, request, PACK);
    case PACK: return pack(staged, request, moved);
    case EXCHANGE:
        EPX_TRY(epx_staged_done(staged, moved));
        if (*moved)
            unpack(staged, request);
        return EPX_SUCCESS;
    default:
        EPX_TRY(epx_staged_handshake(request, &weighted, moved));
        if (!*moved)
            return EPX_SUCCESS;
        epx_staged_begin(staged, request, staged->comm->size, weighted);
        epx_dispatch_begin(request, weighted);
        return EPX_SUCCESS;
    }
}

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * combine_weights.c - a combine whose weights lie at the home ranks: the ground's dispatch of
 * weights alone, then its combine with what came, as one operation of one number.
 *
 * Rows are multiplied where the experts are, before the pairs of a token are summed there, so the
 * weights must be there first. A weight belongs to a pair, as those that EPX_Dispatch carries, and
 * takes the same way: a dispatch of rows of no bytes brings it to the slot of its pair. Thus the
 * bytes of the sums are those of a combine that was given these weights at the experts, on every
 * ground, and no ground has a second way for weights.
 *
 * The ranks agree once, on the combine, and on whether weights travel. A rank may be in the sums
 * while another still takes weights: rows of no bytes use no ring, messages are sent and taken in
 * one order on all ranks, and the areas of hier have rounds.
 *
 * On device memory the kernels of the one follow those of the other, where ranks exchange messages;
 * where they store, combine_rounds.cu sends the weights itself.
 */
#include "coll/ground.h"
#include "coll/verbs.h"
#include "core/ready.h"

int epx_combine_splits(struct epx_request *request, int *weighted)
{
    if (request->call.verb != EPX_VERB_COMBINE || !*weighted)
        return 0;
    *weighted = 0;
    if (request->half == EPX_HALF_SUMS)
        return 0;
    request->half = EPX_HALF_WEIGHTS;
    request->phase = EPX_PHASE_POST;
    return 1;
}

static void begin_sums(struct epx_request *request, const float *row_weights)
{
    request->call.weights_in = row_weights;
    request->half = EPX_HALF_SUMS;
    request->phase = EPX_PHASE_POST;
    request->complete = 0;
}

int epx_combine_weights(struct epx_request *request, int *moved)
{
    const struct epx_ground *ground = epx_transport_of(request)->ground;
    const struct epx_call call = request->call;
    float *row_weights = request->route->plan->row_weights;
    int rc;

    request->call = epx_weights_call(&call, row_weights);
    rc = ground->step[EPX_VERB_DISPATCH](request, moved);
    request->call = call;
    if (rc == EPX_SUCCESS && request->complete)
        begin_sums(request, row_weights);
    return rc;
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.c - what all verbs on a route share: an operation seen from both ends. */
#include "coll/verbs.h"

int epx_gathers(enum epx_verb verb)
{
    return verb == EPX_VERB_COMBINE || verb == EPX_VERB_DISPATCH_BACKWARD;
}

struct epx_home_rows epx_home_rows_of(const struct epx_request *request, struct epx_segments cut,
                                      int weighted)
{
    const struct epx_call *call = &request->call;
    struct epx_home_rows home = {0};

    home.datatype = call->datatype;
    home.cut = cut;
    home.weighted = weighted;
    home.node = request->comm->node;
    if (epx_gathers(call->verb)) {
        home.rows = call->rows_out;
        home.weights = call->weights_out;
    } else {
        home.rows_in = call->rows_in;
        home.weights_in = weighted ? call->weights_in : NULL;
    }
    return home;
}

struct epx_expert_rows epx_expert_rows_of(const struct epx_request *request,
                                          struct epx_segments cut, int weighted, double *sums)
{
    const struct epx_call *call = &request->call;
    struct epx_expert_rows expert = {0};

    expert.datatype = call->datatype;
    expert.cut = cut;
    expert.weighted = weighted;
    expert.sums = sums;
    expert.scales = call->verb == EPX_VERB_COMBINE_BACKWARD;
    expert.rows_in = epx_gathers(call->verb) ? call->rows_in : call->forward_in;
    expert.weights_in = epx_verb_dispatches(call->verb) ? NULL : call->weights_in;
    if (!epx_gathers(call->verb)) {
        expert.rows = call->rows_out;
        expert.row_weights = call->weights_out;
        expert.bypasses = epx_rows_bypass(*request->route->plan->view.num_rows * cut.row_bytes);
    }
    return expert;
}

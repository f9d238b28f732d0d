/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.c - what all verbs on a route share: an operation seen from both ends. */
#include "coll/verbs.h"

struct epx_home_rows epx_home_rows_of(const struct epx_request *request, struct epx_segments cut,
                                      int weighted)
{
    const struct epx_call *call = &request->call;
    struct epx_home_rows home = {0};

    home.datatype = call->datatype;
    home.partial = epx_partial_type(request);
    home.cut = cut;
    home.weighted = weighted;
    home.node = request->comm->node;
    if (epx_verb_adds(call->verb)) {
        home.num_biases = call->num_biases;
        home.biases = call->biases;
        home.rows = call->fields.at[0].out;
        home.weights = call->weights_out;
    } else {
        home.fields = &call->fields;
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
    expert.partial = epx_partial_type(request);
    expert.cut = cut;
    expert.weighted = weighted;
    expert.sums = sums;
    expert.scales = call->verb == EPX_VERB_COMBINE_BACKWARD;
    expert.rows_in = epx_verb_adds(call->verb) ? call->fields.at[0].in : call->forward_in;
    expert.weights_in = epx_verb_dispatches(call->verb) ? NULL : call->weights_in;
    if (!epx_verb_adds(call->verb)) {
        expert.fields = &call->fields;
        expert.row_weights = call->weights_out;
        expert.bypasses = epx_rows_bypass(*request->route->plan->view.arrived_rows * cut.row_bytes);
    }
    return expert;
}

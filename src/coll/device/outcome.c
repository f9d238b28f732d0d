/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * outcome.c - what a kernel found wrong, as text, in the words of the host algorithms. There is no
 * request for an operation in a replayed graph, so its text says less.
 */
#include "coll/device/outcome.h"
#include "coll/device/device_liveness.h"
#include "core/progress.h"
#include "core/route.h"
#include "core/verdict.h"
#include "kernels/args/ready_note.h"

static int report_datatype(const struct epx_outcome *o)
{
    const int64_t first = o->b >> EPX_READY_BIASES_SHIFT, biases = o->c >> EPX_READY_BIASES_SHIFT;
    const int64_t mask = (1 << EPX_READY_BIASES_SHIFT) - 1;

    if (first != biases)
        return epx_fail_differs(EPX_TOLD_BIASES, o->beside, first, biases, o->rank);
    return epx_fail_differs(EPX_TOLD_DATATYPE, o->beside, o->b & mask, o->c & mask, o->rank);
}

static int report_call(const struct epx_outcome *o)
{
    const int64_t mask = (1 << EPX_READY_GRAPH_SHIFT) - 1;

    if ((o->b & mask) == (o->c & mask))
        return epx_fail_differs(EPX_TOLD_GRAPH, o->beside, o->b >> EPX_READY_GRAPH_SHIFT,
                                o->c >> EPX_READY_GRAPH_SHIFT, o->rank);
    return epx_fail_differs(EPX_TOLD_VERB, o->beside, o->b & mask, o->c & mask, o->rank);
}

static int report_difference(const struct epx_outcome *o)
{
    static const enum epx_told told[EPX_READY_COMPARED] = {
        [EPX_READY_ROUTE] = EPX_TOLD_ROUTE,
        [EPX_READY_ROW_LOW] = EPX_TOLD_ROW_BYTES,
    };

    if (o->a >= EPX_DIFFERS_FIELD)
        return epx_fail_field((int)o->a - EPX_DIFFERS_FIELD, o->b, o->c, o->rank);
    if (o->a == EPX_READY_VERB)
        return report_call(o);
    if (o->a == EPX_READY_DATATYPE)
        return report_datatype(o);
    return epx_fail_differs(told[o->a], o->beside, o->b, o->c, o->rank);
}

static int report_short(const struct epx_request *request, const struct epx_outcome *o)
{
    if (request && epx_verb_exchanges(request->call.verb))
        return epx_fail_too_many(o->rank, o->a, o->b);
    return epx_fail_no_room(o->rank, o->a, o->b);
}

static int report_bad_id(const struct epx_request *request, const struct epx_outcome *o)
{
    struct epx_bad_pair bad = {.id = o->c, .token = o->a, .choice = o->b, .num = o->rank};

    return epx_fail_bad_id(bad, request ? request->route->attr.num_experts : 0);
}

static int report_edge(const struct epx_device *device, const struct epx_outcome *o)
{
    const int self = device->comm->rank;

    return o->c ? epx_fail_edge(o->rank, o->a, self, o->b)
                : epx_fail_edge(self, o->b, o->rank, o->a);
}

static int report_silence(struct epx_device *device, const struct epx_outcome *o)
{
    epx_device_note_abort(device, o);
    return epx_fail_quietly(o->code, device->comm->finish_message);
}

int epx_outcome_report(struct epx_device *device, const struct epx_request *request,
                       const struct epx_outcome *o)
{
    switch ((enum epx_outcome_what)o->what) {
    case EPX_OUTCOME_FINE: return EPX_SUCCESS;
    case EPX_OUTCOME_SILENT: return report_silence(device, o);
    case EPX_OUTCOME_DIFFERS: return report_difference(o);
    case EPX_OUTCOME_WEIGHTS:
        return epx_fail_weights(request ? request->call.verb : EPX_VERB_DISPATCH, o->rank,
                                (int)o->a);
    case EPX_OUTCOME_SHORT: return report_short(request, o);
    case EPX_OUTCOME_FULL: return epx_fail_full_slab((int)o->c, o->a, o->b);
    case EPX_OUTCOME_BAD_ID: return report_bad_id(request, o);
    case EPX_OUTCOME_BAD_COUNT: return epx_fail_bad_count(o->rank, o->a, o->b);
    case EPX_OUTCOME_NO_ROWS: return epx_fail_no_rows(o->rank, o->a);
    case EPX_OUTCOME_PAST_END: return epx_fail_past_end(o->rank, o->a, o->b, o->c);
    case EPX_OUTCOME_EDGE: return report_edge(device, o);
    case EPX_OUTCOME_ROUTING: return epx_fail_routing(o->code, o->rank);
    }
    return epx_fail(EPX_ERR_INTERN, "outcome %d is unknown", o->what);
}

/* Sets the word back to 0 last: until then kernels of replays keep their errors to themselves. */
int epx_outcome_take_replay_error(struct epx_device *device)
{
    struct epx_completion *shared = &device->completions[EPX_SHARED_COMPLETION];
    const char *function = epx_status_function();
    struct epx_outcome outcome;

    if (__atomic_load_n(&shared->word, __ATOMIC_ACQUIRE) == 0)
        return EPX_SUCCESS;
    outcome = shared->outcome;
    __atomic_store_n(&shared->word, 0, __ATOMIC_RELEASE);
    if (outcome.what == EPX_OUTCOME_SILENT && device->comm->finished)
        return EPX_SUCCESS; /* told already */
    epx_status_enter("in a replayed graph");
    epx_outcome_report(device, NULL, &outcome);
    epx_status_enter(function);
    return outcome.code;
}

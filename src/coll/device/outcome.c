/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * outcome.c - what a kernel found wrong, as text, in the words of the host algorithms. There is no
 * request for an operation in a replayed graph, so its text says less.
 */
#include "coll/device/outcome.h"

#include "coll/device/device_liveness.h"
#include "core/progress.h"
#include "core/route.h"

static int report_difference(const struct epx_outcome *o)
{
    static const char *const names[EPX_READY_COMPARED] = {
        [EPX_READY_VERB] = "the operation",
        [EPX_READY_ROUTE] = "the number of the route",
        [EPX_READY_ROW_LOW] = "the length of a row in bytes",
        [EPX_READY_DATATYPE] = "the datatype",
    };

    if (o->a == EPX_READY_VERB)
        return epx_fail(o->code, "rank 0 called %s and rank %d %s at the same place",
                        epx_verb_name((enum epx_verb)o->b), o->rank,
                        epx_verb_name((enum epx_verb)o->c));
    return epx_fail(o->code, "%s is %lld on rank 0, %lld on rank %d", names[o->a], (long long)o->b,
                    (long long)o->c, o->rank);
}

static int report_short(const struct epx_request *request, const struct epx_outcome *o)
{
    if (request && request->call.verb == EPX_VERB_ALLTOALLV)
        return epx_fail(o->code, "%lld rows for rank %d, its receive capacity is %lld",
                        (long long)o->a, o->rank, (long long)o->b);
    return epx_fail(o->code, "rank %d needs room for %lld rows, its receive capacity is %lld",
                    o->rank, (long long)o->a, (long long)o->b);
}

static int report_bad_id(const struct epx_request *request, const struct epx_outcome *o)
{
    if (!request)
        return epx_fail(o->code,
                        "expert id %lld of token %lld, choice %lld is out of range (%d such ids); "
                        "they count as -1",
                        (long long)o->c, (long long)o->a, (long long)o->b, o->rank);
    return epx_fail(o->code,
                    "expert id %lld of token %lld, choice %lld is not in -1..%d (%d such ids); "
                    "they count as -1",
                    (long long)o->c, (long long)o->a, (long long)o->b,
                    request->route->attr.num_experts - 1, o->rank);
}

int epx_outcome_report(struct epx_device *device, const struct epx_request *request,
                       const struct epx_outcome *o)
{
    switch ((enum epx_outcome_what)o->what) {
    case EPX_OUTCOME_FINE: return EPX_SUCCESS;
    case EPX_OUTCOME_SILENT:
        epx_device_note_abort(device, o);
        return epx_fail_quietly(o->code, device->comm->finish_message);
    case EPX_OUTCOME_DIFFERS: return report_difference(o);
    case EPX_OUTCOME_WEIGHTS:
        return epx_fail(o->code, "weights are NULL on rank %d but not on rank %lld", o->rank,
                        (long long)o->a);
    case EPX_OUTCOME_SHORT: return report_short(request, o);
    case EPX_OUTCOME_BAD_ID: return report_bad_id(request, o);
    case EPX_OUTCOME_BAD_COUNT:
        return epx_fail(o->code, "sendcounts[%d] is %lld, sdispls[%d] is %lld", o->rank,
                        (long long)o->a, o->rank, (long long)o->b);
    case EPX_OUTCOME_NO_ROWS:
        return epx_fail(o->code, "sendbuf is NULL but sendcounts[%d] is %lld", o->rank,
                        (long long)o->a);
    case EPX_OUTCOME_ROUTING: return epx_fail(o->code, "the routing failed on rank %d", o->rank);
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

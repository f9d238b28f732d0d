/* SPDX-License-Identifier: BSD-3-Clause */
/* wait_times.c - whom operations on host memory have waited for, and how long. */
#include "core/health/wait_times.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* A host that is away for longer between two calls did something else than to poll. */
enum { POLLS_WITHIN_NS = 50000 };

static uint64_t absences; /* under the lock */

int epx_waits_create(struct epx_waits *waits, int rank, int num_ranks)
{
    size_t ranks = (size_t)num_ranks;

    waits->ns = calloc(3 * ranks, sizeof(*waits->ns));
    waits->since_ns = calloc(ranks, sizeof(*waits->since_ns));
    EPX_FAIL_IF(!waits->ns || !waits->since_ns, EPX_ERR_NO_MEM, "no memory for %d ranks",
                num_ranks);
    waits->operations = waits->ns + ranks;
    waits->now_ns = waits->ns + 2 * ranks;
    waits->rank = rank;
    waits->num_ranks = num_ranks;
    epx_waits_tell(waits, waits->ns, waits->operations);
    return EPX_SUCCESS;
}

void epx_waits_free(struct epx_waits *waits)
{
    free(waits->ns);
    free(waits->since_ns);
}

int epx_waits_copy(const struct epx_waits *waits, EPX_Waits *copy)
{
    const int num = waits->num_ranks;

    EPX_FAIL_IF(!copy, EPX_ERR_ARG, "waits is NULL");
    EPX_FAIL_IF(copy->size < sizeof(*copy), EPX_ERR_ARG,
                "waits.size is %zu, want sizeof(EPX_Waits), %zu", copy->size, sizeof(*copy));
    EPX_FAIL_IF(copy->num_ranks < 0 || (copy->num_ranks && copy->num_ranks < num), EPX_ERR_ARG,
                "waits.num_ranks is %d, of %d ranks", copy->num_ranks, num);
    copy->num_ranks = num;
    for (int r = 0; r < num; r++) {
        if (copy->ns)
            copy->ns[r] = waits->told_ns[r] + waits->now_ns[r];
        if (copy->operations)
            copy->operations[r] = waits->told_operations[r];
    }
    return EPX_SUCCESS;
}

void epx_waits_leave(void)
{
    absences++;
}

/* The time since the last look, 0 if this host was elsewhere. Whatever progresses the communicator
 * is never elsewhere. */
static int64_t time_waited(const struct epx_waits *waits, int64_t now_ns)
{
    int64_t gap = now_ns - waits->looked_ns;

    if (!waits->looked_ns)
        return 0;
    return gap > POLLS_WITHIN_NS && waits->absences != absences && !waits->threaded ? 0 : gap;
}

/* Charges the time to the ranks that lacked at the last look. */
static void charge(struct epx_waits *waits, int64_t now_ns)
{
    uint64_t gap = (uint64_t)time_waited(waits, now_ns);

    if (!gap)
        return;
    if (waits->unknown) {
        waits->unknown_ns += gap;
        return;
    }
    waits->waited = 1;
    for (int r = 0; r < waits->num_ranks; r++)
        if (waits->since_ns[r])
            waits->now_ns[r] += gap;
}

static void stop_lacking(struct epx_waits *waits, int rank, int64_t now_ns)
{
    epx_trace_wait(waits->traced, rank, waits->since_ns[rank], now_ns);
    waits->since_ns[rank] = 0;
}

void epx_waits_look(struct epx_waits *waits, struct epx_waits_lack lack, int64_t now_ns)
{
    int known = 0;

    charge(waits, now_ns);
    for (int r = 0; r < waits->num_ranks; r++) {
        int lacking = r != waits->rank && lack.lacks(lack.step, r);

        known |= lacking;
        if (lacking && !waits->since_ns[r])
            waits->since_ns[r] = now_ns;
        else if (!lacking && waits->since_ns[r])
            stop_lacking(waits, r, now_ns);
    }
    waits->unknown = !known;
    waits->looked_ns = now_ns;
    waits->absences = absences;
}

static void get_on(struct epx_waits *waits)
{
    const int64_t now_ns = epx_now_ns();

    charge(waits, now_ns);
    for (int r = 0; r < waits->num_ranks; r++)
        if (waits->since_ns[r])
            stop_lacking(waits, r, now_ns);
    waits->looked_ns = 0;
}

/* The ranks that were waited for longest came last. */
static void count_last(struct epx_waits *waits)
{
    uint64_t longest = 1;

    for (int r = 0; r < waits->num_ranks; r++)
        longest = waits->now_ns[r] > longest ? waits->now_ns[r] : longest;
    for (int r = 0; r < waits->num_ranks; r++)
        waits->operations[r] += waits->now_ns[r] == longest;
}

void epx_waits_step(struct epx_waits *waits, int agreed)
{
    if (waits->looked_ns)
        get_on(waits);
    if (waits->agreed || !agreed)
        return;
    waits->agreed = 1;
    if (waits->waited)
        count_last(waits);
}

static void add(struct epx_waits *waits)
{

    for (int r = 0; r < waits->num_ranks; r++) {
        waits->ns[r] += waits->now_ns[r];
        waits->now_ns[r] = 0;
    }
    waits->waited = 0;
}

void epx_waits_end(struct epx_waits *waits)
{
    if (waits->waited)
        add(waits);
    waits->unknown_ns = 0;
    waits->agreed = 0;
}

void epx_waits_compare(struct epx_waits *waits, struct epx_waits_told *told, int64_t elapsed_ns,
                       const int64_t *waited_ns, size_t stride)
{
    for (int r = 0; r < waits->num_ranks; r++) {
        int64_t late;

        memcpy(&late, (const char *)waited_ns + (size_t)r * stride, sizeof(late));
        late = told->waited_ns - late;
        late = late < told->counted_ns ? late : told->counted_ns;
        if (r == waits->rank || late <= 0)
            continue;
        waits->now_ns[r] += (uint64_t)late;
        waits->waited = 1;
    }
    if (waits->looked_ns)
        get_on(waits);
    told->waited_ns = elapsed_ns;
    told->counted_ns = (int64_t)waits->unknown_ns;
}

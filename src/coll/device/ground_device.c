/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ground_device.c - device memory: the ground where ranks store into each other's windows, the one
 * where they exchange messages, and what both have besides.
 */
#include "coll/device/ground_device.h"

#include "coll/device/device_create.h"
#include "coll/device/device_liveness.h"
#include "coll/device/device_verbs.h"
#include "coll/device/direct/kept_counts.h"
#include "coll/device/graph/device_graph.h"
#include "coll/device/health/device_leave.h"
#include "coll/device/launch.h"
#include "coll/device/outcome.h"
#include "coll/device/plan_device.h"
#include "coll/device/user_memory.h"
#include "transport/module.h"

/*
 * The kernels count in device memory, where nothing is torn or late: an operation's last kernel has
 * counted before it writes the completion that the host saw before it asked for this copy.
 */
static void add_stats(struct epx_device *device, EPX_Stats *stats)
{
    const struct epx_device_stats *counted = &device->notes->stats;

    epx_device_copy(device, &device->notes->stats, &device->state->stats, sizeof(*counted));
    stats->rows_self += counted->rows_self;
    stats->rows_node += counted->rows_node;
    stats->bytes_self += counted->bytes_self;
    stats->bytes_node += counted->bytes_node;
    stats->rows_network += counted->rows_network;
    stats->bytes_network += counted->bytes_network;
    stats->dropped_rows += counted->dropped_rows;
}

static const struct epx_device_ops device_ops = {
    .retire = epx_device_retire,
    .leave = epx_device_leave_peers,
    .run = epx_device_run_step,
    .launch = epx_device_launch,
    .poll = epx_device_poll,
    .ended = epx_device_ended,
    .wait_enqueue = epx_device_wait_enqueue,
    .check_buffers = epx_user_memory_check,
    .keep_counts = epx_device_keep_counts,
    .take_replay_error = epx_outcome_take_replay_error,
    .add_stats = add_stats,
};

static int create(struct epx_transport *transport)
{
    transport->device_ops = &device_ops;
    return epx_device_create(transport);
}

const struct epx_ground epx_ground_device_direct = {
    .name = "device direct",
    .create = create,
    .free = epx_device_free,
    .route_create = epx_device_route_create,
    .graph_create = epx_device_graph_create,
    .queue =
        {
            [EPX_VERB_ROUTE_TOKENS] = epx_route_tokens_device_direct,
            [EPX_VERB_ROUTE_DISPATCH] = epx_route_dispatch_device_direct,
            [EPX_VERB_ROUTE_DISPATCH_FIELDS] = epx_route_dispatch_device_direct,
            [EPX_VERB_DISPATCH] = epx_dispatch_device_direct,
            [EPX_VERB_DISPATCH_FIELDS] = epx_dispatch_device_direct,
            [EPX_VERB_COMBINE] = epx_combine_device_direct,
            [EPX_VERB_DISPATCH_BACKWARD] = epx_combine_device_direct,
            [EPX_VERB_COMBINE_BACKWARD] = epx_dispatch_device_direct,
            [EPX_VERB_ALLTOALLV] = epx_alltoallv_device_direct,
            [EPX_VERB_NEIGHBOR_ALLTOALLV] = epx_neighbor_device_direct,
        },
    .queue_rest =
        {
            [EPX_VERB_ROUTE_DISPATCH] = epx_route_dispatch_takes_device_direct,
            [EPX_VERB_ROUTE_DISPATCH_FIELDS] = epx_route_dispatch_takes_device_direct,
            [EPX_VERB_DISPATCH] = epx_dispatch_takes_device_direct,
            [EPX_VERB_DISPATCH_FIELDS] = epx_dispatch_takes_device_direct,
            [EPX_VERB_COMBINE] = epx_combine_takes_device_direct,
            [EPX_VERB_DISPATCH_BACKWARD] = epx_combine_takes_device_direct,
            [EPX_VERB_COMBINE_BACKWARD] = epx_dispatch_takes_device_direct,
        },
};

const struct epx_ground epx_ground_device_staged = {
    .name = "device staged",
    .create = create,
    .free = epx_device_free,
    .route_create = epx_device_route_create,
    .graph_create = epx_device_graph_create,
    .queue =
        {
            [EPX_VERB_ROUTE_TOKENS] = epx_route_tokens_device_staged,
            [EPX_VERB_ROUTE_DISPATCH] = epx_route_dispatch_device,
            [EPX_VERB_ROUTE_DISPATCH_FIELDS] = epx_route_dispatch_device,
            [EPX_VERB_DISPATCH] = epx_dispatch_device_staged,
            [EPX_VERB_DISPATCH_FIELDS] = epx_dispatch_device_staged,
            [EPX_VERB_COMBINE] = epx_combine_device_staged,
            [EPX_VERB_DISPATCH_BACKWARD] = epx_combine_device_staged,
            [EPX_VERB_COMBINE_BACKWARD] = epx_dispatch_device_staged,
            [EPX_VERB_ALLTOALLV] = epx_alltoallv_device_staged,
            [EPX_VERB_NEIGHBOR_ALLTOALLV] = epx_neighbor_device_staged,
        },
};

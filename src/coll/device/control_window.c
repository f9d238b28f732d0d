/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control_window.c - the window that a communicator on device memory has for itself: first what
 * other ranks store into, then what only this rank uses.
 */
#include "coll/device/control_window.h"
#include "coll/device/staged/device_nodes.h"
#include "core/agree.h"
#include "kernels/args/bank_args.h"
#include "kernels/node_rows.h"
#include "transport/cuda/cuda_errors.h"

#include <stdlib.h>

enum { TABLES = 4 };

/* Where things lie; the control words come first. */
struct layout {
    size_t stage, banks, state, tables, nodes, bytes;
};

static size_t line_up(size_t bytes)
{
    return (size_t)epx_round_up((int64_t)bytes, 256);
}

/* With messages there are two stages: one for rows that go and one for rows that come. */
static struct layout lay_out(const struct epx_comm *comm, const struct epx_gpu *gpu)
{
    struct layout layout = {0};

    layout.stage = line_up(epx_control_bytes(comm->size));
    layout.banks = layout.stage + line_up((size_t)gpu->stage_bytes * (gpu->has_banks ? 1 : 2));
    layout.state = layout.banks + 2 * (size_t)gpu->bank_bytes;
    layout.tables = layout.state + line_up(sizeof(struct epx_device_state));
    layout.nodes = layout.tables + TABLES * (size_t)comm->size * sizeof(char *);
    layout.bytes = layout.nodes + 2 * (size_t)comm->size * sizeof(int32_t);
    return layout;
}

static void place_parts(struct epx_device *device, const struct layout *layout)
{
    char *own = device->window->own;

    device->own_stage = own + layout->stage;
    device->state = (struct epx_device_state *)(void *)(own + layout->state);
    device->control = (char **)(void *)(own + layout->tables);
    device->stage = device->control + device->comm->size;
    if (device->gpu.has_banks)
        device->bank = device->stage + device->comm->size;
    if (device->comm->num_nodes > 1)
        device->node = (int32_t *)(void *)(own + layout->nodes);
}

static int copy_table(const struct epx_device *device, size_t to, const void *table, size_t bytes)
{
    EPX_TRY_CUDA(cudaMemcpyAsync(device->window->own + to, table, bytes, cudaMemcpyHostToDevice,
                                 device->stream));
    EPX_TRY_CUDA(cudaStreamSynchronize(device->stream));
    return EPX_SUCCESS;
}

/* Fills in where the windows of all ranks, and the stages in them, are mapped. */
static int fill_addresses(const struct epx_device *device, const struct layout *layout)
{
    size_t ranks = (size_t)device->comm->size;
    char **table = calloc(TABLES * ranks, sizeof(*table));
    int rc;

    EPX_FAIL_IF(!table, EPX_ERR_NO_MEM, "no memory for %zu ranks", ranks);
    for (size_t r = 0; r < ranks; r++) {
        table[r] = device->window->address[r];
        table[ranks + r] = table[r] + layout->stage;
        table[2 * ranks + r] = table[r] + layout->banks;
        table[3 * ranks + r] = table[2 * ranks + r] + device->gpu.bank_bytes;
    }
    rc = copy_table(device, layout->tables, table, TABLES * ranks * sizeof(*table));
    free(table);
    return rc;
}

/* Fills in the node of each rank, and its place in the order by (node, rank). */
static int fill_nodes(const struct epx_device *device, const struct layout *layout)
{
    const struct epx_comm *comm = device->comm;
    size_t ranks = (size_t)comm->size;
    int32_t *table = calloc(2 * ranks, sizeof(*table)), by_node[EPX_MOST_DEVICE_RANKS];
    int rc;

    EPX_FAIL_IF(!table, EPX_ERR_NO_MEM, "no memory for %zu ranks", ranks);
    epx_nodes_order(comm->node, comm->num_nodes, comm->size, by_node);
    for (int i = 0; i < comm->size; i++) {
        table[i] = comm->node[i];
        table[comm->size + by_node[i]] = i;
    }
    rc = copy_table(device, layout->nodes, table, 2 * ranks * sizeof(*table));
    free(table);
    return rc;
}

static int fill(struct epx_device *device, const struct layout *layout)
{
    EPX_TRY_CUDA(cudaMemsetAsync(device->window->own, 0, layout->bytes, device->stream));
    EPX_TRY(fill_addresses(device, layout));
    return fill_nodes(device, layout);
}

int epx_control_window_create(struct epx_device *device)
{
    const struct epx_transport *transport = device->transport;
    const struct epx_comm *comm = device->comm;
    struct layout layout;

    epx_gpu_set_sizes(&device->gpu, epx_device_nodes_of(comm, EPX_MAX_TOP_K).width,
                      comm->params.window_bytes, transport->ops->exchanges != NULL);
    layout = lay_out(comm, &device->gpu);
    EPX_TRY(transport->ops->window_create(transport->state, layout.bytes, &device->window));
    place_parts(device, &layout);
    return epx_comm_agree(device->comm, fill(device, &layout));
}

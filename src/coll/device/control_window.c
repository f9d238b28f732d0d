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

enum { STAGE_QUANTUM = 16, STAGES_OF_ROWS = 4, STAGES_OF_PACKETS = 2, TABLES = 4 };

/* Where things lie; the control words come first. */
struct layout {
    size_t stage, banks, state, tables, nodes, bytes;
};

static size_t line_up(size_t bytes)
{
    return (size_t)epx_round_up((int64_t)bytes, 256);
}

/* Bytes of a stage: room for one segment of a row from each rank, with what may follow it. Rounded,
 * because with messages a second stage begins where the first ends, and rows lie in both alike. */
static int64_t stage_bytes(const struct epx_comm *comm)
{
    int64_t width = epx_device_nodes_of(comm, EPX_MAX_TOP_K).width;
    int64_t least = width * 2 * EPX_SEGMENT_QUANTUM;
    int64_t wanted = comm->params.window_bytes / STAGE_QUANTUM * STAGE_QUANTUM;

    return wanted > least ? wanted : least;
}

/* Where rows in packets begin in a bank. */
static size_t packets_at(const struct epx_comm *comm)
{
    return line_up((EPX_BANK_FLAGS + EPX_BANK_WORDS) * sizeof(uint64_t) +
                   STAGES_OF_ROWS * (size_t)stage_bytes(comm));
}

/* Bytes of a bank for small operations; with messages there is none. */
static size_t bank_bytes(const struct epx_comm *comm, int messages)
{
    return messages ? 0 : line_up(packets_at(comm) + STAGES_OF_PACKETS * (size_t)stage_bytes(comm));
}

/* With messages there are two stages: one for rows that go and one for rows that come. */
static struct layout lay_out(const struct epx_comm *comm, int messages)
{
    struct layout layout = {0};

    layout.stage = line_up(epx_control_bytes(comm->size));
    layout.banks = layout.stage + line_up((size_t)stage_bytes(comm) * (messages ? 2 : 1));
    layout.state = layout.banks + 2 * bank_bytes(comm, messages);
    layout.tables = layout.state + line_up(sizeof(struct epx_device_state));
    layout.nodes = layout.tables + TABLES * (size_t)comm->size * sizeof(char *);
    layout.bytes = layout.nodes + 2 * (size_t)comm->size * sizeof(int32_t);
    return layout;
}

static void place_parts(struct epx_device *device, const struct layout *layout)
{
    char *own = device->window->own;

    device->own_stage = own + layout->stage;
    device->gpu.stage_bytes = stage_bytes(device->comm);
    device->state = (struct epx_device_state *)(void *)(own + layout->state);
    device->control = (char **)(void *)(own + layout->tables);
    device->stage = device->control + device->comm->size;
    device->gpu.bank_bytes = (int64_t)(layout->state - layout->banks) / 2;
    device->gpu.packets_at = (int64_t)packets_at(device->comm);
    device->gpu.has_banks = device->gpu.bank_bytes > 0;
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
    struct layout layout = lay_out(device->comm, transport->ops->exchanges != NULL);

    EPX_TRY(transport->ops->window_create(transport->state, layout.bytes, &device->window));
    place_parts(device, &layout);
    return epx_comm_agree(device->comm, fill(device, &layout));
}

/* SPDX-License-Identifier: BSD-3-Clause */
/* operation_args.c - what the kernels of an operation are given. */
#include "coll/device/operation_args.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "coll/device/device.h"
#include "coll/device/device_verbs.h"
#include "coll/device/graph/device_graph.h"
#include "coll/device/plan_device.h"
#include "coll/device/staged/proxy.h"
#include "coll/device/user_memory.h"
#include "coll/verbs.h"
#include "core/ready.h"
#include "core/route.h"

/* Whether other ranks store into the buffers that the operation writes. */
static int receives(const struct epx_request *request)
{
    enum epx_verb verb = request->call.verb;

    return epx_verb_dispatches(verb) || verb == EPX_VERB_COMBINE_BACKWARD ||
           epx_verb_exchanges(verb);
}

/* Notes in three words the window that a receive buffer lies in, and the offset; for an empty
 * buffer any window will do. */
static void note_buffer(const struct epx_request *request, int f, uint32_t words[3])
{
    const struct epx_call *call = &request->call;
    const struct epx_field *field = &call->fields.at[f];
    int64_t offset = 0, bytes = receives(request) ? call->recv_capacity * field->bytes : 0;
    const struct epx_segment *segment =
        epx_segment_find(request->comm->segments, field->out, (size_t)bytes, &offset);
    int number = segment ? segment->window->number : bytes ? -1 : 0;

    words[0] = (uint32_t)number;
    words[1] = (uint32_t)offset;
    words[2] = (uint32_t)((uint64_t)offset >> 32);
}

int epx_takes_stores(const struct epx_request *request)
{
    int takes = 1;

    for (int f = 0; f < request->call.fields.num; f++) {
        uint32_t words[3];

        note_buffer(request, f, words);
        takes = takes && words[0] != (uint32_t)-1;
    }
    return takes;
}

/* Kernels that wait for nobody use the multiprocessors that are free, four blocks on each of a
 * large GPU, unless the hint epx_max_sms bounds them. */
enum { FREE_BLOCKS = 4 * 132 };

struct epx_device_comm epx_device_comm_of(const struct epx_request *request)
{
    const struct epx_device *device = epx_device_of(request);
    const struct epx_window *window = device->window;
    struct epx_comm *comm = request->comm;
    struct epx_device_comm args = {0};

    args.rank = comm->rank;
    args.num_ranks = comm->size;
    args.blocks = device->gpu.blocks;
    args.most_blocks = comm->params.max_sms ? (int32_t)comm->params.max_sms : FREE_BLOCKS;
    args.timeout_ns = (uint64_t)comm->params.timeout_ms * EPX_NS_PER_MS;
    args.state = device->state;
    args.control = device->control;
    args.own_control = window->own;
    if (window->device_address)
        args.segments = window->device_address - (size_t)window->number * (size_t)comm->size;
    if (device->node) {
        args.node = device->node;
        args.place = device->node + comm->size;
    }
    args.completion =
        &device->completions[request->captured ? EPX_SHARED_COMPLETION : request->completion];
    args.number = request->number;
    args.captured = request->captured;
    args.verb = (int32_t)request->call.verb;
    args.half = (int32_t)request->half;
    if (device->proxy) {
        args.ring = epx_proxy_ring(device->proxy);
        args.released = epx_proxy_released(device->proxy);
        args.copies = epx_proxy_copies(device->proxy);
    }
    args.waits = &device->notes->waits;
    args.jitter_seed = epx_jitter_seed();
    return args;
}

struct epx_list_note epx_list_note_of(const struct epx_request *request)
{
    struct epx_list_note note = {{0}};

    for (int f = 1; f < request->call.fields.num; f++)
        note_buffer(request, f, &note.word[3 * (f - 1)]);
    return note;
}

/* Notes how long rows are: those of the first field, and of a list those behind it, whose length
 * the call has bounded. */
static void note_rows(const struct epx_call *call, struct epx_ready_note *note)
{
    uint64_t row_bytes = (uint64_t)call->fields.at[0].bytes;

    note->word[EPX_READY_ROW_LOW] = (uint32_t)row_bytes;
    note->word[EPX_READY_ROW_HIGH] = (uint32_t)(row_bytes >> 32);
    for (int f = 1; f < call->fields.num; f++)
        note->word[EPX_READY_FIELDS + f - 1] = (uint32_t)call->fields.at[f].bytes + 1;
}

/* 0 = the operation is on no graph. */
static uint32_t graph_number(const struct epx_request *request)
{
    return request->call.verb == EPX_VERB_NEIGHBOR_ALLTOALLV
               ? request->call.graph->device_graph->number
               : 0;
}

/* Only two ranks that have an edge must have rows of one length: it goes where nothing is
 * compared. */
static void note_edge_rows(struct epx_ready_note *note)
{
    for (int half = 0; half < 2; half++) {
        note->word[EPX_READY_EDGE_ROW_LOW + half] = note->word[EPX_READY_ROW_LOW + half];
        note->word[EPX_READY_ROW_LOW + half] = 0;
    }
    note->word[EPX_READY_EDGE_STORED] = EPX_READY_NONE_STORED;
}

struct epx_ready_note epx_ready_note_of(const struct epx_request *request)
{
    struct epx_ready ready = epx_ready_of(request);
    uint64_t capacity = (uint64_t)request->call.recv_capacity;
    struct epx_ready_note note = {{0}};

    note.word[EPX_READY_VERB] = (uint32_t)ready.verb | graph_number(request)
                                                           << EPX_READY_GRAPH_SHIFT;
    note.word[EPX_READY_ROUTE] = (uint32_t)ready.route;
    note.word[EPX_READY_DATATYPE] = (uint32_t)ready.datatype | (uint32_t)ready.biases
                                                                   << EPX_READY_BIASES_SHIFT;
    note.word[EPX_READY_WEIGHTS] = (uint32_t)ready.weights;
    note.word[EPX_READY_CAPACITY_LOW] = (uint32_t)capacity;
    note.word[EPX_READY_CAPACITY_HIGH] = (uint32_t)(capacity >> 32);
    note_rows(&request->call, &note);
    note_buffer(request, 0, &note.word[EPX_READY_SEGMENT]);
    if (request->call.verb == EPX_VERB_NEIGHBOR_ALLTOALLV)
        note_edge_rows(&note);
    return note;
}

struct epx_agree epx_agree_args_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    struct epx_agree args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .list = epx_list_note_of(request),
        .listed = call->fields.num > 1,
        .stands = !epx_verb_routes(call->verb),
        .routing = request->route ? epx_device_plan_of(request)->outcome : NULL,
    };

    return args;
}

struct epx_dispatch_rows epx_dispatch_args_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    int many = epx_verb_dispatches(call->verb) && plan->shape.rank_major;
    struct epx_dispatch_rows args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .plan = *plan,
        .num_tokens = call->num_tokens,
        .datatype = call->datatype,
        .fields = call->fields,
        .list = epx_list_note_of(request),
        .row_bytes = call->row_bytes,
        .rows = call->fields.at[0].in,
        .weights = call->weights_in,
        .forward = call->forward_in,
        .recv = call->fields.at[0].out,
        .recv_weights = call->weights_out,
        .zeroed_to = request->route->attr.zero_unused ? call->recv_capacity : 0,
        .weights_width = many ? plan->shape.top_k : 1,
    };

    return args;
}

struct epx_combine_rows epx_combine_args_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    struct epx_combine_rows args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .plan = *epx_device_plan_of(request),
        .num_tokens = call->num_tokens,
        .backward = call->verb == EPX_VERB_DISPATCH_BACKWARD,
        .datatype = call->datatype,
        .wide = epx_partial_type(request) != call->datatype,
        .row_bytes = epx_wire_row_bytes(request),
        .rows = call->fields.at[0].in,
        .weights = call->token_weights ? call->token_weights : call->weights_in,
        .given = call->token_weights != NULL,
        .sums = call->fields.at[0].out,
        .grad_weights = call->weights_out,
        .num_biases = call->num_biases,
    };

    for (int b = 0; b < call->num_biases; b++)
        args.biases[b] = call->biases[b];
    return args;
}

/* The rows that sendbuf can have, as only the kernel knows how many it has. */
static int64_t send_rows(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;

    if (call->row_bytes == 0)
        return INT64_MAX;
    return call->fields.at[0].in
               ? epx_user_memory_bytes(epx_device_of(request), call->fields.at[0].in) /
                     call->row_bytes
               : 0;
}

struct epx_alltoallv_rows epx_alltoallv_args_of(const struct epx_request *request)
{
    const struct epx_call *call = &request->call;
    const struct epx_device *device = epx_device_of(request);
    int32_t ranks = request->comm->size;
    struct epx_alltoallv_rows args = {
        .comm = epx_device_comm_of(request),
        .note = epx_ready_note_of(request),
        .stage = device->stage,
        .stage_bytes = device->gpu.stage_bytes,
        .row_bytes = call->row_bytes,
        .rows = call->fields.at[0].in,
        .send_rows = send_rows(request),
        .sendcounts = call->sendcounts,
        .sdispls = call->sdispls,
        .recv = call->fields.at[0].out,
        .recvcounts = call->recvcounts,
        .rdispls = call->rdispls,
        .recv_capacity = call->recv_capacity,
        .packed_rows = call->row_bytes ? epx_most_packed(ranks) / call->row_bytes : INT64_MAX,
        .packet_words = epx_packet_words(ranks),
    };

    return args;
}

/* Edges between the same two ranks share the room that packets of a rank have. */
struct epx_neighbor_rows epx_neighbor_args_of(const struct epx_request *request)
{
    const struct epx_device_graph *graph = request->call.graph->device_graph;
    const int32_t turns = graph->most_turns ? graph->most_turns : 1;
    const int64_t row_bytes = request->call.row_bytes;
    const int64_t packed = epx_most_packed(request->comm->size) / turns / 16 * 16;
    struct epx_neighbor_rows args = {
        .rows = epx_alltoallv_args_of(request),
        .sources = graph->sources,
        .destinations = graph->destinations,
        .most_sources = graph->most_sources,
        .most_turns = graph->most_turns,
        .edge_packets = packed / 4,
    };

    args.rows.packed_rows = row_bytes ? packed / row_bytes : INT64_MAX;
    return args;
}

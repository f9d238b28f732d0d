/* SPDX-License-Identifier: BSD-3-Clause */
/* operation_args.c - what every kernel of an operation is given. */
#include "coll/device/operation_args.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "coll/device/device.h"
#include "coll/device/plan_device.h"
#include "coll/device/staged/proxy.h"
#include "coll/verbs.h"
#include "core/ready.h"
#include "core/route.h"
#include "kernels/args/block_shape.h"

/* Fills in how many tokens a round has and how many rounds there are, given how rows are cut; share
 * is the stage's bytes for one of the `width` rows of a token. */
static struct epx_rounds fill_rounds(struct epx_rounds rounds, int64_t share, int32_t max_tokens)
{
    int64_t tokens = share / rounds.pitch;

    rounds.tokens = (int32_t)(tokens < max_tokens ? tokens : max_tokens);
    rounds.tokens = rounds.tokens ? rounds.tokens : 1;
    rounds.num = ((int64_t)max_tokens + rounds.tokens - 1) / rounds.tokens * rounds.cut.num;
    rounds.num = rounds.num ? rounds.num : 1;
    return rounds;
}

struct epx_rounds epx_rounds_of(int64_t row_bytes, int32_t width, int32_t max_tokens,
                                int64_t stage_bytes_)
{
    struct epx_rounds rounds;
    int64_t share = stage_bytes_ / width / 16 * 16;

    rounds.cut = epx_segments_cut(row_bytes, share);
    rounds.width = width;
    rounds.pitch = epx_round_up(rounds.cut.bytes ? rounds.cut.bytes : 1, 16);
    return fill_rounds(rounds, share, max_tokens);
}

/* A slice for every one of so many warps, if there are fewer rows; not longer than `most`. */
static struct epx_slices slices_for(const struct epx_request *request, int64_t warps, int64_t most)
{
    const int64_t row_bytes = epx_wire_row_bytes(request);
    struct epx_slices slices = epx_slices_of(row_bytes, request->route->attr.max_tokens, warps);

    if (slices.bytes > most) {
        slices.num = (int32_t)((row_bytes + most - 1) / most);
        slices.bytes = epx_round_up((row_bytes + slices.num - 1) / slices.num, EPX_SLICE_QUANTUM);
    }
    return slices;
}

/* How many tasks a sender's warp claims at once: two where there are enough for all warps, and as
 * many as it takes for each run to have a word. */
static int32_t run_of(const struct epx_request *request, const struct epx_movers *movers,
                      int64_t warps)
{
    int64_t rows = (int64_t)1 << movers->rows_log2;
    int64_t tasks = (request->route->attr.max_tokens + rows - 1) / rows * movers->slices.num;
    int64_t least = (tasks + EPX_SENDER_RUNS - 1) / EPX_SENDER_RUNS;

    if (tasks >= 2 * warps && least < 2)
        return 2;
    return least > 1 ? (int32_t)least : 1;
}

/* Whether an operation may not have the whole GPU. */
static int is_bounded(const struct epx_device *device)
{
    return device->movers < device->sms;
}

/* So many of an operation's blocks send, and take when they have sent; its other blocks take from
 * the beginning. None send where rows come by messages. */
static struct epx_movers share_out(const struct epx_device *device, int32_t senders)
{
    struct epx_movers movers = {.senders = device->proxy ? 0 : senders};

    movers.takers = device->movers - movers.senders;
    return movers;
}

/* Whether other ranks store into the buffers that the operation writes. */
static int receives(const struct epx_request *request)
{
    enum epx_verb verb = request->call.verb;

    return epx_verb_dispatches(verb) || verb == EPX_VERB_COMBINE_BACKWARD ||
           verb == EPX_VERB_ALLTOALLV;
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

/* Whether other ranks can store into all receive buffers of the call. */
static int takes_stores(const struct epx_request *request)
{
    int takes = 1;

    for (int f = 0; f < request->call.fields.num; f++) {
        uint32_t words[3];

        note_buffer(request, f, words);
        takes = takes && words[0] != (uint32_t)-1;
    }
    return takes;
}

/* The blocks that send if they are a share of all: no more than may, no fewer than half. */
static int32_t senders_of_share(const struct epx_device *device, int32_t share, int32_t of)
{
    int32_t senders = share * device->movers / of;

    senders = senders < EPX_MOST_SENDERS ? senders : EPX_MOST_SENDERS;
    return senders > device->senders ? senders : device->senders;
}

/* How many of a dispatch's blocks send. A single rank's take its rows to all their slots. Half of
 * them do where an operation has the whole GPU; a bound makes senders end later, so more of them
 * do: of long rows five eighths, of others nine sixteenths if blocks are few. Rows that stay where
 * they come leave the blocks that take little to do, but there must be one. */
static int32_t row_senders(const struct epx_request *request, const struct epx_slices *slices)
{
    const struct epx_device *device = epx_device_of(request);

    if (request->comm->size == 1)
        return device->movers;
    if (epx_device_plan_of(request)->shape.rank_major && takes_stores(request))
        return senders_of_share(device, 3, 4);
    if (is_bounded(device) && slices->bytes > EPX_MIDDLE_SLICE)
        return senders_of_share(device, 5, 8);
    if (is_bounded(device) && device->senders <= EPX_FEW_SENDERS)
        return senders_of_share(device, 9, 16);
    return device->senders;
}

/* How many rows of one field a warp moves at once, as a power of 2: as many as it has room for, if
 * there is a task for each of so many warps. */
static int32_t rows_log2_of(const struct epx_request *request, const struct epx_slices *slices,
                            int64_t warps)
{
    int64_t most = EPX_BUNDLE_BYTES / epx_bundle_pitch(epx_wire_row_bytes(request));
    int32_t log2 = 0;

    if (request->call.fields.num > 1 || slices->num > 1)
        return 0;
    if (most > EPX_BUNDLE_PLACES / request->route->attr.top_k)
        most = EPX_BUNDLE_PLACES / request->route->attr.top_k;
    if (most > EPX_WARP)
        most = EPX_WARP;
    while (2 << log2 <= most && (int64_t)2 << log2 <= request->route->attr.max_tokens / warps)
        log2++;
    return log2;
}

/* The warps of a block that moves rows: the shorter a task of theirs, the more of them. Where
 * blocks are few a block has a multiprocessor's whole memory, and warps for it. */
static int32_t row_warps(const struct epx_request *request, const struct epx_movers *movers)
{
    if (movers->rows_log2)
        return EPX_BUNDLE_WARPS;
    if (movers->slices.bytes <= EPX_MIDDLE_SLICE)
        return EPX_MIDDLE_WARPS;
    if (epx_device_of(request)->senders > EPX_FEW_SENDERS)
        return EPX_MOVING_WARPS;
    return request->call.fields.num > 1 ? EPX_CROWDED_LIST_WARPS : EPX_CROWDED_WARPS;
}

/* Slices, rows of a task, warps and runs are the same on all ranks; how many blocks send may
 * differ. */
struct epx_movers epx_row_movers_of(const struct epx_request *request)
{
    const struct epx_device *device = epx_device_of(request);
    const struct epx_slices slices =
        slices_for(request, (int64_t)device->senders * EPX_MOVING_WARPS, EPX_BOX_SLICE);
    int32_t senders = row_senders(request, &slices), alone = request->comm->size == 1;
    struct epx_movers movers = share_out(device, senders);
    int64_t blocks = alone ? senders : device->senders;

    movers.slices = slices;
    movers.rows_log2 = rows_log2_of(request, &movers.slices, blocks * EPX_BUNDLE_WARPS);
    movers.warps = row_warps(request, &movers);
    movers.run = run_of(request, &movers, blocks * movers.warps);
    return movers;
}

/* Takers have more to do than senders: for each slot they read a row and write another. Five of 32
 * blocks send, and eight of them where a bound makes senders end later. Slices are the same on
 * ranks of which only some are bounded. */
struct epx_movers epx_grad_movers_of(const struct epx_request *request)
{
    const struct epx_device *device = epx_device_of(request);
    int alone = request->comm->size == 1;
    int32_t few = (5 * device->senders + 15) / 16;
    int32_t senders = is_bounded(device) ? (device->senders + 1) / 2 : few;
    struct epx_movers movers = share_out(device, alone ? 0 : senders);
    int64_t warps = movers.senders ? (int64_t)few * EPX_ADDING_WARPS : 0;

    movers.slices = slices_for(request, warps, EPX_GRAD_SLICE);
    movers.rows_log2 = warps ? rows_log2_of(request, &movers.slices, warps) : 0;
    movers.run = run_of(request, &movers, warps);
    return movers;
}

/* As many chunks of the token numbers as there are tokens, if rows are long, else half as many but
 * enough for so many warps; never more than tokens, nor than have a word for each slice. */
static int32_t chunks_of(const struct epx_request *request, const struct epx_slices *slices,
                         int32_t warps)
{
    enum { LONG_ROW_BYTES = 8192 };
    int32_t most = EPX_SENDER_RUNS / slices->num, least = warps / slices->num;
    int32_t tokens = request->route->attr.max_tokens;
    int32_t wanted = epx_wire_row_bytes(request) >= LONG_ROW_BYTES ? tokens : tokens / 2;

    wanted = wanted > least ? wanted : least;
    wanted = wanted < tokens ? wanted : tokens;
    wanted = wanted < most ? wanted : most;
    return wanted > 1 ? wanted : 1;
}

/* Half of the blocks send, and three fifths where a bound makes senders end later. Few tokens are
 * cut into slices for twice as many warps as half of the blocks have for odd rows; for others they
 * have more. */
struct epx_movers epx_sum_movers_of(const struct epx_request *request)
{
    const struct epx_device *device = epx_device_of(request);
    int alone = request->comm->size == 1;
    int32_t warps = 2 * device->senders * EPX_ADDING_WARPS;
    int32_t senders = is_bounded(device) ? senders_of_share(device, 3, 5) : device->senders;
    struct epx_movers movers = share_out(device, alone ? 0 : senders);

    movers.slices = slices_for(request, warps, INT64_MAX);
    movers.chunks = chunks_of(request, &movers.slices, warps);
    return movers;
}

struct epx_rounds epx_message_rounds_of(const struct epx_request *request, int32_t words)
{
    const struct epx_device_plan *plan = epx_device_plan_of(request);
    int64_t behind = epx_round_up(words * (int64_t)sizeof(float), 16), share;
    struct epx_rounds rounds;

    share = plan->stage_bytes / plan->nodes.width / 16 * 16;
    rounds.cut = epx_segments_cut(epx_wire_row_bytes(request), share - behind);
    rounds.width = plan->nodes.width;
    rounds.pitch = epx_round_up(rounds.cut.bytes ? rounds.cut.bytes : 1, 16) + behind;
    return fill_rounds(rounds, share, plan->shape.max_tokens);
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
    args.blocks = device->blocks;
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

struct epx_ready_note epx_ready_note_of(const struct epx_request *request)
{
    struct epx_ready ready = epx_ready_of(request);
    uint64_t capacity = (uint64_t)request->call.recv_capacity;
    struct epx_ready_note note = {{0}};

    note.word[EPX_READY_VERB] = (uint32_t)ready.verb;
    note.word[EPX_READY_ROUTE] = (uint32_t)ready.route;
    note.word[EPX_READY_DATATYPE] = (uint32_t)ready.datatype;
    note.word[EPX_READY_WEIGHTS] = (uint32_t)ready.weights;
    note.word[EPX_READY_CAPACITY_LOW] = (uint32_t)capacity;
    note.word[EPX_READY_CAPACITY_HIGH] = (uint32_t)(capacity >> 32);
    note_rows(&request->call, &note);
    note_buffer(request, 0, &note.word[EPX_READY_SEGMENT]);
    return note;
}

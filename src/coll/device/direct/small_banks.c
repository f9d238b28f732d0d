/* SPDX-License-Identifier: BSD-3-Clause */
/* small_banks.c - how small operations travel through banks, and how many blocks they have. */
#include "coll/device/direct/small_banks.h"

#include "base/jitter.h"
#include "coll/device/device.h"
#include "coll/device/direct/small_route.h"
#include "coll/device/plan_device.h"
#include "coll/verbs.h"
#include "core/route.h"

/* What the kernels do: the second half of an operation is a dispatch, whatever the first was. */
static enum epx_verb verb_of(const struct epx_request *request)
{
    return request->half == EPX_HALF_DISPATCH ? EPX_VERB_DISPATCH : request->call.verb;
}

int epx_is_small_routing(const struct epx_request *request)
{
    return epx_is_small_route(epx_device_of(request), epx_device_plan_of(request));
}

/* A multiprocessor issues for so many warps at once: a block of a small operation has no more of
 * them busy while there are multiprocessors for more blocks. */
enum { BUSY_WARPS = 4 };

/* Whether rows fit in a bank, and their slices have a flag each. */
static int fit_in_bank(const struct epx_device *device, const struct epx_banks *banks, int64_t rows)
{
    int64_t room =
        device->packets_at - (EPX_BANK_FLAGS + EPX_BANK_WORDS) * (int64_t)sizeof(uint64_t);

    return rows * banks->slices.num <= EPX_BANK_FLAGS && rows <= room / banks->pitch;
}

/* Whether there is room for rows. A rank that is alone puts none into a bank; beyond a bank's room
 * its small operations are the faster where a token has one slot, rows have whole words, and none
 * are added. */
static int have_room(const struct epx_request *request, const struct epx_banks *banks, int64_t rows)
{
    const struct epx_plan_shape *shape = &epx_device_plan_of(request)->shape;

    if (request->comm->size == 1 && shape->top_k == 1 &&
        !epx_is_odd_row(epx_wire_row_bytes(request)) && !epx_verb_adds(verb_of(request)))
        return 1;
    return fit_in_bank(epx_device_of(request), banks, rows);
}

/* Bytes of a row in a bank, without words that go with it. */
static int64_t bytes_in_bank(const struct epx_request *request)
{
    const struct epx_fields *fields = &request->call.fields;
    int64_t bytes = 0;

    if (fields->num <= 1)
        return epx_bytes_in_bank(epx_wire_row_bytes(request));
    for (int f = 0; f < fields->num; f++)
        bytes += epx_bytes_in_bank(fields->at[f].bytes);
    return bytes;
}

/* The warps of all blocks that send. */
static int64_t sending_warps(const struct epx_device *device)
{
    return (int64_t)device->senders * EPX_WAITING_THREADS / EPX_WARP;
}

/* The work of a warp that adds grows with the rows of a sum, so its slices may be shorter. Slices
 * depend on nothing in which ranks may differ, and fit in the flags of a bank. */
static struct epx_slices small_slices(const struct epx_request *request, int64_t row_bytes,
                                      int32_t width)
{
    const struct epx_device *device = epx_device_of(request);
    const int64_t least =
        epx_verb_adds(verb_of(request)) ? EPX_SLICE_QUANTUM : EPX_LEAST_SLICE_BYTES;
    int64_t warps = sending_warps(device);

    if (warps > EPX_BANK_FLAGS / width)
        warps = EPX_BANK_FLAGS / width;
    return epx_slices_from(least, row_bytes, request->route->attr.max_tokens, warps);
}

/* Blocks for so many pieces of work, a warp each: at least one, at most so many. */
static int32_t blocks_for(int64_t pieces, int64_t most)
{
    int64_t blocks = (pieces + BUSY_WARPS - 1) / BUSY_WARPS;

    blocks = blocks < most ? blocks : most;
    return blocks > 1 ? (int32_t)blocks : 1;
}

/* Blocks of a small combine backward that scale gradients into their slots; each has some of the
 * slots, and its warps share their rows. */
static int32_t blocks_that_scale(const struct epx_request *request, int64_t most)
{
    const struct epx_plan_shape *shape = &epx_device_plan_of(request)->shape;
    int64_t records = (int64_t)request->comm->size * shape->max_tokens;
    int64_t slots = records * epx_most_slots_of_record(shape);
    int64_t elements = request->call.row_bytes / epx_datatype_bytes(request->call.datatype);

    return blocks_for(slots * epx_dot_blocks(elements), most < slots ? most : slots);
}

/* Blocks of a small operation that take so many pieces of rows for each rank that sends. */
static int32_t blocks_that_take(const struct epx_request *request, int64_t pieces, int64_t most)
{
    const enum epx_verb verb = verb_of(request);

    if (epx_verb_adds(verb))
        return blocks_for(pieces, most);
    if (epx_verb_dispatches(verb))
        return blocks_for(pieces * request->comm->size, most);
    return verb == EPX_VERB_COMBINE_BACKWARD ? blocks_that_scale(request, most) : 1;
}

/*
 * Shares out the blocks of a small operation. Where rows are added both kinds of blocks have about
 * as much to do. In a dispatch and in a combine backward those who take rows have more, as they
 * store them for each expert. Those who take are as many as wait in a routing, unless the hint
 * epx_max_sms, which bounds both kinds together, leaves room for fewer.
 */
static void share_out_small(const struct epx_request *request, int32_t width,
                            struct epx_banks *banks)
{
    const struct epx_device *device = epx_device_of(request);
    const enum epx_verb verb = verb_of(request);
    /* a rank that is alone sends no rows, but a routing's ids */
    const int alone = request->comm->size == 1 && !epx_verb_routes(verb);
    const int stores_more = epx_verb_dispatches(verb) || verb == EPX_VERB_COMBINE_BACKWARD;
    int64_t pieces = (int64_t)request->route->attr.max_tokens * banks->slices.num;
    int64_t most = device->most_senders, least;

    if (epx_verb_adds(verb) && most > device->movers / 2)
        most = device->movers / 2;
    if (stores_more && most > device->movers / 4)
        most = device->movers / 4;
    banks->senders = blocks_for(alone ? 0 : pieces * width, most);
    most = device->movers - banks->senders;
    least = request->comm->params.max_sms && most < device->blocks ? most : device->blocks;
    banks->takers = blocks_that_take(request, pieces, most);
    if (banks->takers < least)
        banks->takers = (int32_t)least;
}

/* Bytes of rows that a bank holds up to which packets take less time than flags do, where rows are
 * added and where not; docs/performance.md has the measurements. With --enable-jitter small tests
 * go both ways. */
enum {
    MOST_PACKED_SUMS = EPX_JITTERS ? 1 << 13 : 2 << 20,
    MOST_PACKED_ROWS = EPX_JITTERS ? 1 << 13 : 4 << 20
};

/* Whether the rows of a small operation, so many on each rank, may travel in packets. In an
 * operation that routes ids come later than rows. */
static int packets_pay(const struct epx_request *request, int64_t rows)
{
    const enum epx_verb verb = verb_of(request);
    const int64_t row_bytes = epx_wire_row_bytes(request), bytes = rows * row_bytes;

    if (request->comm->size == 1 || request->call.fields.num > 1 || epx_is_odd_row(row_bytes) ||
        bytes == 0)
        return 0;
    if (epx_verb_adds(verb))
        return bytes <= MOST_PACKED_SUMS;
    return verb == EPX_VERB_DISPATCH && bytes <= MOST_PACKED_ROWS;
}

/* Decides whether rows travel in packets. Slices that are longer than a stripe end with one. */
static void set_packets(const struct epx_request *request, int64_t rows, struct epx_banks *banks)
{
    const struct epx_device *device = epx_device_of(request);
    const int64_t row_bytes = epx_wire_row_bytes(request);
    const int64_t room = (device->bank_bytes - device->packets_at) / 16;
    struct epx_slices slices = banks->slices;
    int32_t stripes, packets;

    if (!packets_pay(request, rows))
        return;
    if (!epx_verb_adds(verb_of(request)))
        slices = epx_slices_from(EPX_STRIPE_BYTES, row_bytes, request->route->attr.max_tokens,
                                 sending_warps(device));
    if (slices.bytes > EPX_STRIPE_BYTES)
        slices.bytes = epx_round_up(slices.bytes, EPX_STRIPE_BYTES);
    slices.num = (int32_t)((row_bytes + slices.bytes - 1) / slices.bytes);
    stripes = (int32_t)((slices.bytes + EPX_STRIPE_BYTES - 1) / EPX_STRIPE_BYTES);
    packets = slices.num * stripes * EPX_STRIPE_PACKETS;
    if (banks->pitch > banks->words_at)
        packets += EPX_WARP;
    if (rows * packets > room)
        return;
    banks->slices = slices;
    banks->packets_at = device->packets_at;
    banks->row_packets = packets;
    banks->stripes = stripes;
}

struct epx_banks epx_banks_of(const struct epx_request *request, int32_t width, int32_t words)
{
    const struct epx_device *device = epx_device_of(request);
    const struct epx_plan_shape *shape = &epx_device_plan_of(request)->shape;
    struct epx_banks banks = {.bank = device->bank, .words_at = bytes_in_bank(request)};
    int64_t row_bytes = epx_wire_row_bytes(request), rows = (int64_t)shape->max_tokens * width;

    if (request->call.fields.num > 1)
        row_bytes = banks.words_at;
    banks.slices = small_slices(request, row_bytes, width);
    banks.pitch = banks.words_at + epx_round_up(words * (int64_t)sizeof(float), 16);
    banks.pitch = banks.pitch ? banks.pitch : 16;
    if (epx_has_few_pairs(device, shape) &&
        epx_small_pays(device, shape, verb_of(request), epx_wire_row_bytes(request)) &&
        have_room(request, &banks, rows)) {
        set_packets(request, rows, &banks);
        share_out_small(request, width, &banks);
    }
    return banks;
}

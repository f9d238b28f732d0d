/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * boxes.cuh - rows on their way through shared memory. A warp has a ring of boxes; each takes a
 * slice of a row. Who only moves rows stores it from there to all its places, so that it is read
 * once. Where the GPU has bulk copies (TMA), a lane loads a slice, or some lanes load a piece each
 * of what goes into a box, every lane stores to another place, and several boxes are under way at
 * once.
 *
 * Rows have any length and alignment. In its box a slice lies as far behind a multiple of 16 bytes
 * as where it came from, so that all but its ends is loaded in bulk; if it is only to be moved, as
 * far behind one of 128, a line of the cache. To a place that lies as far behind a multiple
 * of 16 it is stored in bulk too, in whole lines if the place is as far behind one of 128; to
 * others in words of 16 bytes, which are shifted through registers.
 */
#ifndef EPX_KERNELS_WARP_BOXES_CUH
#define EPX_KERNELS_WARP_BOXES_CUH

#include "kernels/args/mover_args.h"
#include "kernels/warp/copy_row.cuh"
#include "kernels/warp/odd_rows.cuh"
#include "kernels/warp/ptx.cuh"

#ifdef __CUDACC__

enum {
    MOST_BOXES = 8, /* of a warp */
    WORD_ENDS = 32, /* those of a piece that lies in a box as behind a multiple of 16 alone */
};

/* The boxes of a warp. */
struct boxes {
    char *first;
    uint64_t *loaded; /* [num] barriers of bulk loads */
    int32_t label;    /* where the bytes begin that say what to do with the data before them */
    int32_t bytes;    /* of a box */
    int32_t num;
    int32_t ahead;   /* boxes that may be filled and not yet emptied */
    uint32_t phases; /* of each box's barrier, a bit */
};

/* What goes into the boxes of a warp: slices, with the ends of their pieces, and labels. */
struct box_shape {
    int32_t room; /* bytes that the warp has */
    int32_t label;
    int64_t slice;
    int32_t ends;
    int32_t line; /* boxes begin at multiples of so many bytes */
};

/* As many boxes as there is room for. None may be in use. */
static __device__ __forceinline__ void shape_boxes(struct boxes &boxes,
                                                   const struct box_shape &shape)
{
    boxes.label = (int32_t)epx_round_up(shape.slice + shape.ends, 16);
    boxes.bytes = (int32_t)epx_round_up(boxes.label + shape.label, shape.line);
    boxes.num = shape.room / boxes.bytes < MOST_BOXES ? shape.room / boxes.bytes : MOST_BOXES;
    boxes.ahead = boxes.num > 2 ? boxes.num - 1 : boxes.num;
}

/* The whole block: boxes for each warp. */
static __device__ struct boxes make_boxes(char *room, uint64_t *barriers,
                                          const struct box_shape &shape)
{
    const int32_t warp = (int32_t)threadIdx.x / EPX_WARP;
    struct boxes boxes = {room + (int64_t)warp * shape.room, barriers + warp * MOST_BOXES};

    shape_boxes(boxes, shape);
#if HAS_BULK_COPIES
    if (lane_id() < MOST_BOXES)
        init_bulk_barrier(&boxes.loaded[lane_id()]);
#endif
    __syncthreads();
    return boxes;
}

static __device__ __forceinline__ char *data_in(const struct boxes &boxes, int32_t box)
{
    return boxes.first + box * boxes.bytes;
}

template <typename Label>
static __device__ __forceinline__ Label &label_of(const struct boxes &boxes, int32_t box)
{
    return *(Label *)(void *)(data_in(boxes, box) + boxes.label);
}

/* A run of bytes: its head comes before the first multiple of 16, its body has whole words of 16
 * bytes, the rest is its tail. */
struct byte_run {
    int32_t head;
    int64_t body;
};

static __device__ __forceinline__ struct byte_run run_at(const void *address, int64_t bytes)
{
    int32_t head = (int32_t)((16 - misalignment(address)) & 15);

    head = head < bytes ? head : (int32_t)bytes;
    return {head, (bytes - head) / 16 * 16};
}

/* Where in a box a piece may begin that comes from there, behind `at` bytes. */
static __device__ __forceinline__ int64_t begin_of_piece(int64_t at, const void *from)
{
    return at + (int64_t)(((uintptr_t)from - (uintptr_t)at) % EPX_LINE);
}

/* Where in a box the next piece may begin, behind one at `at`. */
static __device__ __forceinline__ int64_t end_of_piece(int64_t at, int64_t bytes)
{
    return epx_round_up(at + bytes, 16) + 16;
}

/* The whole warp: copies the head and the tail of a run, half a warp each. */
static __device__ __forceinline__ void copy_ends(char *to, const char *from, int64_t bytes,
                                                 const struct byte_run &run)
{
    int64_t at = lane_id() < 16 ? lane_id() : run.head + run.body + lane_id() - 16;

    if (at < (lane_id() < 16 ? run.head : bytes))
        to[at] = from[at];
}

/* The whole warp: copies whole words of 16 bytes, which lie on multiples of 16. */
static __device__ __forceinline__ void copy_whole_words(char *to, const char *from, int64_t bytes)
{
    for (int64_t i = lane_id(); i < bytes / 16; i += EPX_WARP)
        ((uint4 *)(void *)to)[i] = ((const uint4 *)(const void *)from)[i];
}

/* The whole warp: begins to load a piece into a box, `at` bytes behind the start of its data, which
 * is as far behind a multiple of 16 as where it comes from. */
static __device__ void load_piece(const struct boxes &boxes, int32_t box, int64_t at,
                                  const char *from, int64_t bytes)
{
    const struct byte_run run = run_at(from, bytes);
    char *to = data_in(boxes, box) + at;

#if HAS_BULK_COPIES
    if (lane_id() == 0 && run.body)
        load_bulk(to + run.head, from + run.head, (uint32_t)run.body, &boxes.loaded[box]);
    copy_ends(to, from, bytes, run);
    if (run.body < bytes) /* the next slice may be loaded over the ends in bulk */
        fence_bulk_copies_here();
#else
    copy_whole_words(to + run.head, from + run.head, run.body);
    copy_ends(to, from, bytes, run);
#endif
}

/* The whole warp: begins to load whole words of 16 bytes, which lie on multiples of 16, to places
 * in a box: each lane its own, or nothing. */
static __device__ __forceinline__ void load_whole_words(const struct boxes &boxes, int32_t box,
                                                        char *to, const char *from, int32_t bytes)
{
#if HAS_BULK_COPIES
    if (bytes)
        load_bulk(to, from, (uint32_t)bytes, &boxes.loaded[box]);
#else
    for (uint32_t lanes = __ballot_sync(~0u, bytes != 0); lanes; lanes &= lanes - 1) {
        const int lane = __ffs((int)lanes) - 1;

        copy_whole_words((char *)__shfl_sync(~0u, (unsigned long long)to, lane),
                         (const char *)__shfl_sync(~0u, (unsigned long long)from, lane),
                         __shfl_sync(~0u, bytes, lane));
    }
#endif
    __syncwarp();
}

/* Memory that one may read, whoever has the bytes. */
struct extent {
    const char *first;
    int64_t bytes;
};

/* The whole warp: as load_piece, as far behind a multiple of 16 from `at` on, but whole words of 16
 * bytes where these are within `all`, so that no lane waits for the ends. What these words have
 * beside the piece may change meanwhile. */
static __device__ void load_words(const struct boxes &boxes, int32_t box, int64_t at,
                                  const char *from, int64_t bytes, const struct extent &all)
{
    const int64_t odd = misalignment(from), words = epx_round_up(odd + bytes, 16);
    const bool within = from - odd >= all.first && from - odd + words <= all.first + all.bytes;

    if (within)
        load_piece(boxes, box, at, from - odd, words);
    else
        load_piece(boxes, box, at + odd, from, bytes);
}

/* The whole warp: all pieces that go into a box are under way. */
static __device__ __forceinline__ void end_loads(const struct boxes &boxes, int32_t box)
{
#if HAS_BULK_COPIES
    if (lane_id() == 0)
        arrive_at_bulk_barrier(&boxes.loaded[box]);
#endif
}

/* The whole warp: waits until a box is full. */
static __device__ __forceinline__ void await_box(struct boxes &boxes, int32_t box)
{
#if HAS_BULK_COPIES
    while (!bulk_phase_has_ended(&boxes.loaded[box], boxes.phases >> box & 1))
        ;
    boxes.phases ^= 1u << box;
#endif
    __syncwarp();
}

/* The whole warp: waits until a box is empty, with which so many others may be being emptied. */
static __device__ __forceinline__ void await_empty_box(const struct boxes &boxes)
{
#if HAS_BULK_COPIES
    if (boxes.num == boxes.ahead)
        await_bulk_reads<0>();
    else
        await_bulk_reads<1>();
#endif
    __syncwarp();
}

/* The whole warp: what this warp has stored in bulk, but for the last LATE tasks, is in memory and
 * is ordered like what its lanes have stored. */
template <int LATE> static __device__ __forceinline__ void await_stores()
{
#if HAS_BULK_COPIES
    await_bulk_stores<LATE>();
    fence_bulk_copies();
#endif
    __syncwarp();
}

/* One lane: stores a piece to a place that lies as far behind a multiple of 16 as in the box. */
static __device__ __forceinline__ void store_alike(char *to, const char *box, int64_t bytes)
{
#if HAS_BULK_COPIES
    const struct byte_run run = run_at(to, bytes);

    if (run.body)
        store_bulk(to + run.head, box + run.head, (uint32_t)run.body);
    for (int64_t i = 0; i < run.head; i++)
        to[i] = box[i];
    for (int64_t i = run.head + run.body; i < bytes; i++)
        to[i] = box[i];
#endif
}

/* The whole warp: stores `num` words of 16 bytes, of which the first begins `odd` bytes into in[0].
 * WORDS is odd / 4, so that the code need not choose between words of 4 bytes. */
template <int WORDS>
static __device__ __forceinline__ void store_shifted_words(uint4 *out, const uint4 *in, int32_t num,
                                                           uint32_t odd)
{
#pragma unroll 2
    for (int32_t i = lane_id(); i < num; i += EPX_WARP) {
        const uint4 low = in[i], high = in[i + 1];

        out[i] = shift_pack(low, high, WORDS * 4 | (odd & 3));
    }
}

/* The whole warp: stores a piece to one place. Words of shared memory that are read to be
 * shifted may reach 15 bytes before the piece and 16 behind it, which are of the same box. */
static __device__ void store_shifted(char *to, const char *box, int64_t bytes)
{
    const struct byte_run run = run_at(to, bytes);
    const char *body = box + run.head;
    const uint32_t odd = misalignment(body);
    const uint4 *in = (const uint4 *)(const void *)(body - odd);
    uint4 *out = (uint4 *)(void *)(to + run.head);
    const int32_t num = (int32_t)(run.body / 16);

    switch (odd / 4) {
    case 0: store_shifted_words<0>(out, in, num, odd); break;
    case 1: store_shifted_words<1>(out, in, num, odd); break;
    case 2: store_shifted_words<2>(out, in, num, odd); break;
    default: store_shifted_words<3>(out, in, num, odd);
    }
    copy_ends(to, box, bytes, run);
}

/* The whole warp: stores a piece to the place of each lane, NULL = none. */
static __device__ void store_piece(char *place, const char *box, int64_t bytes)
{
    bool alike = HAS_BULK_COPIES && misalignment(place) == misalignment(box);
    uint32_t others = __ballot_sync(~0u, place && !alike);

    if (place && alike)
        store_alike(place, box, bytes);
    for (; others; others &= others - 1)
        store_shifted((char *)__shfl_sync(~0u, (unsigned long long)place, __ffs((int)others) - 1),
                      box, bytes);
}

/* The whole warp: bulk copies may read what its lanes have written into a box, and load over it. */
static __device__ __forceinline__ void end_writes()
{
#if HAS_BULK_COPIES
    fence_bulk_copies_here();
#endif
    __syncwarp();
}

/* The whole warp: stores a piece, which its lanes wrote, to one place. */
static __device__ void store_written(char *to, const char *box, int64_t bytes)
{
    end_writes();
#if HAS_BULK_COPIES
    if (misalignment(to) == misalignment(box)) {
        const struct byte_run run = run_at(to, bytes);

        if (lane_id() == 0 && run.body)
            store_bulk(to + run.head, box + run.head, (uint32_t)run.body);
        copy_ends(to, box, bytes, run);
        return;
    }
#endif
    store_shifted(to, box, bytes);
}

/* The whole warp: all places of a task have been stored to, if not in memory yet. */
static __device__ __forceinline__ void end_stores()
{
#if HAS_BULK_COPIES
    end_bulk_group();
#endif
    __syncwarp();
}

static __device__ __forceinline__ int32_t next_box(const struct boxes &boxes, int32_t box)
{
    return box + 1 < boxes.num ? box + 1 : 0;
}

/*
 * The whole warp: one task after the other, each from work.begin(box), which fills a box, to
 * work.end(box), which empties it. begin returns false where there is nothing more to do, or a wait
 * was given up, and is not called again then.
 */
template <typename Work> static __device__ void do_tasks(Work &work, const struct boxes &boxes)
{
    int32_t filled = 0, emptied = 0, under_way = 0;
    bool more = true;

#pragma unroll 1
    do {
        while (more && under_way < boxes.ahead) {
            await_empty_box(boxes);
            more = work.begin(filled);
            if (more) {
                filled = next_box(boxes, filled);
                under_way++;
            }
        }
        if (under_way) {
            work.end(emptied);
            emptied = next_box(boxes, emptied);
            under_way--;
        }
    } while (more || under_way);
}

#endif

#endif

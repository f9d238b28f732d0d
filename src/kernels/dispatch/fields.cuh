/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fields.cuh - rows of several fields. In stages and messages a row is its fields one behind the
 * other; in the users' buffers each field has rows of its own. Every kernel of dispatch is compiled
 * twice: LIST = false is for one field and knows nothing of the others.
 */
#ifndef EPX_KERNELS_DISPATCH_FIELDS_CUH
#define EPX_KERNELS_DISPATCH_FIELDS_CUH

#include "kernels/protocol/records.cuh"

#ifdef __CUDACC__

/* The part of a run of bytes of a row that lies in one field. */
struct piece {
    const char *in;
    char *out;
    int32_t field;
    int64_t row_bytes;     /* of the field */
    int64_t offset, bytes; /* in the field's row */
    int64_t ahead;         /* bytes of the run in front of the piece */
};

/* Uses the pieces of bytes [offset, offset + bytes) of a row, in order. */
template <typename Use>
static __device__ __forceinline__ void for_pieces_of_list(const struct epx_dispatch_rows &a,
                                                          int64_t offset, int64_t bytes, Use use)
{
    int64_t ahead = 0;

    for (int32_t f = 0; f < a.fields.num; f++) {
        const struct epx_field &field = a.fields.at[f];
        int64_t part = field.bytes - offset;

        part = part < bytes - ahead ? part : bytes - ahead;
        if (part > 0) {
            use(piece{(const char *)field.in, (char *)field.out, f, field.bytes, offset, part,
                      ahead});
            ahead += part;
            offset += part;
        }
        offset -= field.bytes;
    }
}

template <bool LIST, typename Use>
static __device__ __forceinline__ void for_pieces(const struct epx_dispatch_rows &a, int64_t offset,
                                                  int64_t bytes, Use use)
{
    if constexpr (LIST)
        for_pieces_of_list(a, offset, bytes, use);
    else
        use(piece{a.rows, a.recv, 0, a.row_bytes, offset, bytes, 0});
}

/* The rows of the f-th field. */
template <bool LIST>
static __device__ __forceinline__ struct field_rows rows_of_field(const struct epx_dispatch_rows &a,
                                                                  int32_t f)
{
    if constexpr (LIST)
        return {(char *)a.fields.at[f].out, a.fields.at[f].bytes};
    else
        return {a.recv, a.row_bytes};
}

/* Where the other ranks' receive buffers lie; in shared memory. Of one field the ready words say
 * it. */
template <bool LIST> struct windows {
};
template <> struct windows<true> {
    char *at[EPX_MAX_FIELDS][EPX_MOST_DEVICE_RANKS];
    uint32_t direct[EPX_MOST_DEVICE_RANKS]; /* all fields of the rank can be stored into */
};

static __device__ __forceinline__ bool takes_stores(const struct exchange &x,
                                                    const struct windows<false> &, int32_t rank)
{
    return is_direct(x, rank);
}

static __device__ __forceinline__ bool takes_stores(const struct exchange &,
                                                    const struct windows<true> &w, int32_t rank)
{
    return w.direct[rank];
}

static __device__ __forceinline__ char *window_of(const struct epx_device_comm &c, int32_t segment,
                                                  int32_t rank)
{
    return c.segments[(int64_t)segment * c.num_ranks + rank];
}

static __device__ __forceinline__ char *buffer_on(const struct epx_device_comm &c,
                                                  const struct exchange &x,
                                                  const struct windows<false> &, int32_t,
                                                  int32_t rank)
{
    return window_of(c, (int32_t)ready_word(x, rank, EPX_READY_SEGMENT), rank) +
           ready_long(x, rank, EPX_READY_OFFSET_LOW);
}

static __device__ __forceinline__ char *buffer_on(const struct epx_device_comm &,
                                                  const struct exchange &,
                                                  const struct windows<true> &w, int32_t field,
                                                  int32_t rank)
{
    return w.at[field][rank];
}

/* The whole first block: tells all ranks where rows of the fields behind the first go. */
static __device__ void post_list(const struct epx_device_comm &c, const struct epx_list_note &note,
                                 const struct exchange &x)
{
    for (int32_t i = (int32_t)threadIdx.x; i < c.num_ranks * EPX_LIST_WORDS;
         i += (int32_t)blockDim.x) {
        char *control = c.control[i / EPX_LIST_WORDS];
        int32_t word = i % EPX_LIST_WORDS;

        EPX_DELAY(c);
        store_relaxed_sys(epx_control_lists(control, c.num_ranks, (uint32_t)x.epoch, c.rank) + word,
                          tagged(x.epoch, note.word[word]));
    }
}

/* All blocks, after the ranks were found to agree: waits for what post_list posts. */
static __device__ bool await_list(const struct epx_device_comm &c, struct exchange &x)
{
    const uint64_t *own = epx_control_lists(c.own_control, c.num_ranks, (uint32_t)x.epoch, 0);
    bool ok = true;

    EPX_DELAY(c);
    for (int32_t i = (int32_t)threadIdx.x; ok && i < c.num_ranks * EPX_LIST_WORDS;
         i += (int32_t)blockDim.x) {
        uint32_t payload;

        ok = await_tagged(c, own + i, (uint32_t)x.epoch, i / EPX_LIST_WORDS, &payload);
    }
    return all_content(c, x, ok);
}

/* The three words of a field and rank. */
static __device__ void read_place(const struct epx_device_comm &c, const struct exchange &x,
                                  int32_t field, int32_t rank, uint32_t place[3])
{
    const uint64_t *list =
        epx_control_lists(c.own_control, c.num_ranks, (uint32_t)x.epoch, rank) + 3 * (field - 1);

    for (int32_t i = 0; i < 3; i++)
        place[i] = field ? (uint32_t)load_relaxed_sys(list + i)
                         : ready_word(x, rank, EPX_READY_SEGMENT + i);
}

static __device__ __forceinline__ void
read_windows(const struct epx_dispatch_rows &, const struct exchange &, struct windows<false> &)
{
}

/* The whole block, once all words have come. */
static __device__ void read_windows(const struct epx_dispatch_rows &a, const struct exchange &x,
                                    struct windows<true> &w)
{
    for (int32_t r = (int32_t)threadIdx.x; r < a.comm.num_ranks; r += (int32_t)blockDim.x) {
        uint32_t place[3];

        w.direct[r] = 1;
        for (int32_t f = 0; f < a.fields.num; f++) {
            read_place(a.comm, x, f, r, place);
            w.at[f][r] = NULL;
            if ((int32_t)place[0] < 0)
                w.direct[r] = 0;
            else
                w.at[f][r] = window_of(a.comm, (int32_t)place[0], r) +
                             (int64_t)((uint64_t)place[2] << 32 | place[1]);
        }
    }
    __syncthreads();
}

#endif

#endif

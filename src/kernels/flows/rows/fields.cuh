/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fields.cuh - rows of several fields. In stages and messages a row is its fields one behind the
 * other; in the users' buffers each field has rows of its own. The kernels of dispatch between GPUs
 * that store into each other are compiled twice: LIST = false is for one field and knows nothing of
 * the others.
 */
#ifndef EPX_KERNELS_FLOWS_ROWS_FIELDS_CUH
#define EPX_KERNELS_FLOWS_ROWS_FIELDS_CUH

#include "kernels/args/row_args.h"
#include "kernels/warp/copy_row.cuh"

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

/* Rows of a field and their length. */
struct field_rows {
    char *rows;
    int64_t row_bytes;
};

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

#endif

#endif

/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_tensor.c - parts of arenas on host memory as tensors, by DLPack, whose structs are these:
 * github.com/dmlc/dlpack, include/dlpack/dlpack.h, before version 1.0.
 */
#include "glue.h"

#include <stdlib.h>

enum { DLPACK_CPU = 1, DLPACK_UINT = 1 };

struct dlpack_tensor {
    void *data;
    int32_t device_type;
    int32_t device;
    int32_t num_dimensions;
    uint8_t type_code;
    uint8_t type_bits;
    uint16_t type_lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};

/* The first two members after the tensor are the standard's; the others are ours. */
struct dlpack_managed {
    struct dlpack_tensor tensor;
    void *context;
    void (*deleter)(struct dlpack_managed *);
    struct epx_python_block *block;
    int64_t bytes;
    int64_t stride;
};

/* Called by the last owner, in any thread, with or without Python: it is local. */
static void delete (struct dlpack_managed *managed)
{
    epx_python_give(managed->block);
    free(managed);
}

static void fill(struct dlpack_managed *managed, struct epx_python_block *block, int64_t bytes)
{
    const struct dlpack_tensor tensor = {
        .data = epx_python_block_data(block),
        .device_type = DLPACK_CPU,
        .num_dimensions = 1,
        .type_code = DLPACK_UINT,
        .type_bits = 8,
        .type_lanes = 1,
        .shape = &managed->bytes,
        .strides = &managed->stride,
    };

    managed->tensor = tensor;
    managed->deleter = delete;
    managed->block = block;
    managed->bytes = bytes;
    managed->stride = 1;
}

/* So many bytes of the communicator's arenas, for a capsule named "dltensor"; NULL if there is no
 * room, for 0 bytes, and on device memory. */
void *epx_python_tensor(int number, int64_t bytes)
{
    struct epx_python_comm *comm;
    struct epx_python_block *block;
    struct dlpack_managed *managed;

    if (epx_python_comm(number, &comm) != EPX_SUCCESS || comm->on_device)
        return NULL;
    block = epx_python_take(number, bytes, -1);
    managed = block ? calloc(1, sizeof(*managed)) : NULL;
    if (managed)
        fill(managed, block, bytes);
    else if (block)
        epx_python_give(block);
    return managed;
}

/* For what no framework has taken over. */
void epx_python_tensor_free(void *tensor)
{
    struct dlpack_managed *managed = tensor;

    managed->deleter(managed);
}

# SPDX-License-Identifier: BSD-3-Clause
"""A grouped matrix product over slabs that leaves out the rows that are not used, in Triton.

A slab has room for a fixed number of rows, of which an expert uses the first few. How many is read
on the GPU, so that a CUDA graph can hold the product and the counts may change between replays.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import, unused-ignore]
import triton.language as tl  # type: ignore[import, unused-ignore]
from torch import Tensor

ROWS, COLUMNS, DEPTH = tl.constexpr(64), tl.constexpr(64), tl.constexpr(64)
"""The tile of the output that a program makes, and the values of a row that it takes at a time."""


def is_for(device: torch.device) -> bool:
    """Whether the kernel runs there: compiled, or on a CPU interpreted by TRITON_INTERPRET=1."""
    if not isinstance(make_tile, triton.JITFunction):  # interpreted
        return device.type == "cpu"
    # Triton converts float8_e4m3fn on GPUs whose hardware does.
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


@triton.jit  # type: ignore[untyped-decorator]
def make_tile(
    rows: tl.tensor,  # [experts * room, depth], row_stride apart
    row_stride: tl.tensor,
    scales: tl.tensor,  # [experts * room, depth / block], scale_stride apart; or None
    scale_stride: tl.tensor,
    counts: tl.tensor,  # [experts]
    matrices: tl.tensor,  # [experts, depth, width]
    out: tl.tensor,  # [experts * room, width]
    room: tl.constexpr,
    depth: tl.constexpr,
    width: tl.constexpr,
    block: tl.constexpr,
    has_silu: tl.constexpr,
) -> None:
    """The program of a tile of rows, a tile of columns and an expert."""
    first = tl.program_id(0) * ROWS
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    expert = tl.program_id(2).to(tl.int64)
    count = tl.load(counts + expert)
    if first >= count:
        return
    within = first + tl.arange(0, ROWS)
    is_used = within < count
    row = expert * room + within
    step = tl.arange(0, DEPTH)
    row_at = rows + row[:, None] * row_stride + step
    matrix_at = matrices + (expert * depth + step[:, None]) * width + column
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for done in range(0, depth, DEPTH):
        left = tl.load(row_at + done, mask=is_used[:, None], other=0.0)
        right = tl.load(matrix_at + done * width)
        if scales is not None:
            scale_at = scales + row * scale_stride + done // block
            left = left.to(tl.float32) * tl.load(scale_at, mask=is_used, other=0.0)[:, None]
        total = tl.dot(left.to(right.dtype), right, total)
    if has_silu:
        total *= tl.sigmoid(total)
    out_at = out + row[:, None] * width + column
    tl.store(out_at, total.to(out.dtype.element_ty), mask=is_used[:, None])


def masked_product(
    rows: Tensor,
    counts: Tensor,
    matrices: Tensor,
    scales: Tensor | None = None,
    has_silu: bool = False,
) -> Tensor:
    """Each slab of ``rows`` times the matrix of its expert: [experts * room, width].

    ``scales`` has one for each block of a row's values; ``has_silu`` takes the SiLU of the product.
    Rows and scales may be strided by row, ``counts`` and ``matrices`` are contiguous. The result is
    of the matrices' dtype. Its rows behind ``counts`` are not written.
    """
    experts, depth, width = matrices.shape
    room = len(rows) // experts
    block = depth if scales is None else depth // scales.shape[1]
    if depth % DEPTH.value or width % COLUMNS.value or block % DEPTH.value:
        raise ValueError(f"{depth} times {width} by blocks of {block}: no multiples of a tile")
    out = matrices.new_empty(len(rows), width)
    # The tiles of rows come first, so that those of one expert find its matrix in the cache.
    tiles = (triton.cdiv(room, ROWS.value), width // COLUMNS.value, experts)
    strided = rows, rows.stride(0), scales, 0 if scales is None else scales.stride(0)
    make_tile[tiles](*strided, counts, matrices, out, room, depth, width, block, has_silu)
    return out

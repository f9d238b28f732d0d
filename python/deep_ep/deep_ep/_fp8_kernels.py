# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of Triton: rows in fp8, where a GPU has the type, and their scales in columns."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCKS = 8  # that a program makes
_ROWS = 32  # whose scales a program copies
_LEAST_CAPABILITY = (8, 9)  # of a GPU that has the type
_TAKEN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ready: set[tuple[Any, ...]] = set()  # what kernels were compiled and loaded for


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit(do_not_specialize=["num_blocks"])
def _make_blocks(
    x,
    rows,
    scales,
    num_blocks,
    least: tl.constexpr,
    largest: tl.constexpr,
    ROUNDS: tl.constexpr,
    PACKS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    is_there = block < num_blocks
    at = block.to(tl.int64)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    values = tl.load(x + at, mask=is_there[:, None], other=0.0).to(tl.float32)
    most = _larger(tl.reduce(tl.abs(values), 1, _larger), least)
    scale = most * (1 / largest)
    if ROUNDS:
        exponent = tl.minimum(((scale.to(tl.int32, bitcast=True) - 1) >> 23) + 1, 255)
        scale = (exponent << 23).to(tl.float32, bitcast=True)
        factor = tl.div_rn(tl.full([BLOCKS], 1.0, tl.float32), scale)
    else:
        factor = tl.div_rn(tl.full([BLOCKS], largest, tl.float32), most)
    made = (values * factor[:, None]).to(tl.float8e4nv)
    tl.store(rows + at, made, mask=is_there[:, None])
    if PACKS:
        tl.store(scales + block, exponent.to(tl.uint8), mask=is_there)
    else:
        tl.store(scales + block, scale, mask=is_there)


@triton.jit
def _copy_used(
    rows,
    columns,
    counts,
    room,
    num_scales,
    ROWS: tl.constexpr,
    SCALES: tl.constexpr,
):
    slab = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    scale = tl.arange(0, SCALES)
    is_used = (row < room) & (row < tl.load(counts + slab))
    is_there = is_used[:, None] & (scale < num_scales)[None, :]
    first = slab * room * num_scales
    at = first + row[:, None] * num_scales + scale[None, :]
    values = tl.load(rows + at, mask=is_there)
    tl.store(columns + first + scale[None, :] * room + row[:, None], values, mask=is_there)


def _rows_kind(x: Tensor, round_scale: bool, packed: bool) -> tuple[Any, ...]:
    return x.device, x.dtype, round_scale, packed


def _scales_kind(device: torch.device, dtype: torch.dtype, shape: Any) -> tuple[Any, ...]:
    return device, dtype, *shape  # of a slab: the numbers that a kernel is compiled for


def _is_on_current(*tensors: Tensor) -> bool:
    """Whether these lie on the current GPU, where Triton launches, as kernels expect them to."""
    current = torch.cuda.current_device()
    return all(t.get_device() == current and t.data_ptr() % 16 == 0 for t in tensors)


def make_ready(
    x: Tensor,
    slab: tuple[int, int],
    block: int,
    least: float,
    largest: float,
    round_scale: bool,
    packed: bool,
) -> None:
    """Launch each kernel once, which compiles and loads it, for rows like ``x`` [T, H].

    ``slab``: room for rows that arrive, and scales of a row. Does nothing where that was done, in a
    capture, and on a GPU without the type. Else it waits for the GPU: a kernel that is loaded
    behind an operation may wait for its end, and the operation for a message that the host cannot
    send then.
    """
    device, dtype = x.device, torch.int32 if packed else torch.float32
    kinds = {_rows_kind(x, round_scale, packed), _scales_kind(device, dtype, slab)}
    if kinds <= _ready or x.dtype not in _TAKEN or not _is_on_current(x):
        return
    if torch.cuda.is_current_stream_capturing():
        return
    if torch.cuda.get_device_capability(device) < _LEAST_CAPABILITY:
        return
    torch.cuda.synchronize(device)
    row = torch.zeros((1, x.shape[1]), dtype=x.dtype, device=device)
    to_fp8(row, block, least, largest, round_scale, packed)
    scales = torch.zeros((1, *slab), dtype=dtype, device=device)
    counts = torch.zeros(1, dtype=torch.int32, device=device)
    copy_used(scales, torch.empty_like(scales), counts)
    torch.cuda.synchronize(device)
    _ready.update(kinds)


def takes(x: Tensor, round_scale: bool, packed: bool) -> bool:
    """Whether to_fp8 takes these rows without being compiled."""
    if _rows_kind(x, round_scale, packed) not in _ready or not x.numel():
        return False
    return x.is_contiguous() and not x.is_neg() and _is_on_current(x)


def to_fp8(
    x: Tensor, block: int, least: float, largest: float, round_scale: bool, packed: bool
) -> tuple[Tensor, Tensor]:
    """Rows [T, H] in float8_e4m3fn, and what a row has for each block: a scale in float32, or the
    exponent of one in a byte."""
    num_blocks, dtype = x.numel() // block, torch.uint8 if packed else torch.float32
    rows = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((x.shape[0], x.shape[1] // block), dtype=dtype, device=x.device)
    _make_blocks[(triton.cdiv(num_blocks, _BLOCKS),)](
        x.detach(),
        rows,
        scales,
        num_blocks,
        least=least,
        largest=largest,
        ROUNDS=round_scale,
        PACKS=packed,
        BLOCK=block,
        BLOCKS=_BLOCKS,
    )
    return rows, scales


def copies(scales: Tensor, columns: Tensor, counts: Tensor) -> bool:
    """Whether copy_used takes these without being compiled."""
    kind = _scales_kind(scales.device, scales.dtype, scales.shape[1:])
    return kind in _ready and _is_on_current(scales, columns, counts)


def copy_used(scales: Tensor, columns: Tensor, counts: Tensor) -> None:
    """Of scales [L, rows, S] copies the first ``counts`` [L], int32, of each slab.

    ``columns`` has the shape of ``scales``, and each slab of it in column-major.
    """
    num_slabs, room, num_scales = scales.shape
    _copy_used[(num_slabs, triton.cdiv(room, _ROWS))](
        scales,
        columns,
        counts,
        room,
        num_scales,
        ROWS=_ROWS,
        SCALES=triton.next_power_of_2(num_scales),
    )

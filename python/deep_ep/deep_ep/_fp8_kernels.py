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
_compiled: set[tuple[Any, ...]] = set()


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
    is_there = (row < tl.load(counts + slab))[:, None] & (scale < num_scales)[None, :]
    first = slab * room * num_scales
    at = first + row[:, None] * num_scales + scale[None, :]
    values = tl.load(rows + at, mask=is_there)
    tl.store(columns + first + scale[None, :] * room + row[:, None], values, mask=is_there)


def _is_ready(variant: tuple[Any, ...]) -> bool:
    """Whether a kernel was compiled for this, or may be now: not while a graph is captured."""
    return variant in _compiled or not torch.cuda.is_current_stream_capturing()


def _fp8_variant(x: Tensor, round_scale: bool, packed: bool) -> tuple[Any, ...]:
    return x.device, x.dtype, x.data_ptr() % 16 == 0, round_scale, packed


def takes(x: Tensor, *, round_scale: bool, packed: bool) -> bool:
    """Whether to_fp8 takes these rows: on a GPU that has the type, and not to be compiled now."""
    if not x.is_cuda or not x.is_contiguous() or not x.numel():
        return False
    if torch.cuda.get_device_capability(x.device) < _LEAST_CAPABILITY:
        return False
    return _is_ready(_fp8_variant(x, round_scale, packed))


def to_fp8(
    x: Tensor, block: int, least: float, largest: float, *, round_scale: bool, packed: bool
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
    _compiled.add(_fp8_variant(x, round_scale, packed))
    return rows, scales


def _copy_variant(rows: Tensor, columns: Tensor) -> tuple[Any, ...]:
    are_aligned = rows.data_ptr() % 16 == 0, columns.data_ptr() % 16 == 0
    return rows.device, rows.dtype, rows.shape[1:], are_aligned


def copies(rows: Tensor, columns: Tensor) -> bool:
    """Whether copy_used takes these: on a GPU, and not to be compiled now."""
    return rows.is_cuda and rows.numel() > 0 and _is_ready(_copy_variant(rows, columns))


def copy_used(rows: Tensor, columns: Tensor, counts: Tensor) -> None:
    """Of scales [L, rows, S] copies the first ``counts`` [L], int32, of each slab.

    ``columns`` has the shape of ``rows``, and each slab of it in column-major.
    """
    num_slabs, room, num_scales = rows.shape
    _copy_used[(num_slabs, triton.cdiv(room, _ROWS))](
        rows,
        columns,
        counts,
        room,
        num_scales,
        ROWS=_ROWS,
        SCALES=triton.next_power_of_2(num_scales),
    )
    _compiled.add(_copy_variant(rows, columns))

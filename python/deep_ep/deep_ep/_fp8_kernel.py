# SPDX-License-Identifier: BSD-3-Clause
"""Rows in fp8 by one kernel of Triton, where a GPU has the type: torch alone takes five."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCKS = 8  # that a program makes
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


def _variant(x: Tensor, round_scale: bool, packed: bool) -> tuple[Any, ...]:
    """What the kernel is compiled for."""
    return x.device, x.dtype, x.data_ptr() % 16 == 0, round_scale, packed


def takes(x: Tensor, *, round_scale: bool, packed: bool) -> bool:
    """Whether to_fp8 takes these rows: on a GPU that has the type, and not to be compiled now."""
    if not x.is_cuda or not x.is_contiguous() or not x.numel():
        return False
    if torch.cuda.get_device_capability(x.device) < _LEAST_CAPABILITY:
        return False
    is_compiled = _variant(x, round_scale, packed) in _compiled
    return is_compiled or not torch.cuda.is_current_stream_capturing()


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
    _compiled.add(_variant(x, round_scale, packed))
    return rows, scales

# SPDX-License-Identifier: BSD-3-Clause
"""Rows in fp8 with a scale for every 128 elements, and the layouts that scales have."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from epx.interfaces import LARGEST, exponents_above, largest, scaled

BLOCK = 128  # elements of a scale
_LEAST = 1e-4  # of a block: what is below has the scale of this


def align(value: int, to: int) -> int:
    """The least multiple of ``to`` that is not below the value."""
    return -(-value // to) * to


@functools.cache
def _kernels() -> Any:
    """The kernels of Triton, where Triton is installed; else None."""
    try:
        from . import _fp8_kernels
    except ImportError:
        return None
    return _fp8_kernels


def to_fp8(x: Tensor, *, round_scale: bool, packed: bool) -> tuple[Tensor, Tensor]:
    """Rows in float8_e4m3fn, and their scales: float32 [T, H / 128], or int32 [T, H / 512].

    ``round_scale``: scales are powers of two; ``packed``: their exponents, four in an int32.
    """
    how = {"round_scale": round_scale, "packed": packed}
    kernels = _kernels() if x.is_cuda else None
    if kernels is not None and kernels.takes(x, **how):
        rows, scales = kernels.to_fp8(x, BLOCK, _LEAST, LARGEST, **how)
        return rows, scales.view(torch.int32) if packed else scales
    blocks = x.detach().view(x.shape[0], x.shape[1] // BLOCK, BLOCK)  # also without tokens
    most = largest(blocks).clamp_(min=_LEAST)
    scales = most * (1 / LARGEST)  # as DeepEP
    if round_scale:
        exponents = exponents_above(scales)
        scales = (exponents << 23).view(torch.float32)
        factors = scales.reciprocal()
    else:
        factors = torch.div(torch.tensor(LARGEST, device="cpu"), most)
    rows = scaled(blocks, factors).view(x.shape)
    if packed:
        return rows, exponents.to(torch.uint8).view(torch.int32)
    return rows, scales


def column_major(shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty matrix whose columns lie one behind the other, each at a multiple of 16 bytes."""
    rows, columns = shape
    per_16 = 16 // dtype.itemsize
    return torch.empty((columns, align(rows, per_16)), dtype=dtype, device=device).T[:rows]


def in_columns(scales: Tensor) -> Tensor:
    """The scales in column-major, as GEMMs load them by TMA."""
    made = column_major((scales.shape[0], scales.shape[1]), scales.dtype, scales.device)
    return made.copy_(scales)


def copy_used(scales: Tensor, columns: Tensor, counts: Tensor) -> None:
    """Copies scales [L, rows, S] to slabs in column-major; it may leave out unused rows.

    ``counts`` int32 [L]: how many rows of each slab are used.
    """
    kernels = _kernels() if scales.is_cuda else None
    if kernels is not None and kernels.copies(scales, columns):
        kernels.copy_used(scales, columns, counts)
    else:
        columns.copy_(scales)

# SPDX-License-Identifier: BSD-3-Clause
"""Numbers in float8_e4m3fn, blocks of which have a scale, in few kernels of torch."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 448.0  # of float8_e4m3fn


def _single(blocks: Tensor) -> Tensor:
    """Blocks in float64 in float32, which the others become where they are used."""
    return blocks.float() if blocks.dtype == torch.float64 else blocks


def largest(blocks: Tensor) -> Tensor:
    """Of blocks [..., B] the largest absolute value, float32 [...]."""
    blocks = _single(blocks)
    made: Tensor = torch.linalg.vector_norm(blocks, torch.inf, -1, dtype=torch.float32)
    return made


def scaled(blocks: Tensor, factors: Tensor) -> Tensor:
    """Blocks [..., B] times their factors, float32 [...], in float32 and then float8_e4m3fn."""
    blocks = _single(blocks)
    made = torch.empty(blocks.shape, dtype=torch.float8_e4m3fn, device=blocks.device)
    return torch.mul(blocks, factors[..., None], out=made)


def exponents_above(scales: Tensor) -> Tensor:
    """The exponents, with their bias of 127, of the least powers of two that are not below.

    Scales are float32 and positive; exponents are int32, 255 for infinity and NaN.
    """
    return (((scales.view(torch.int32) - 1) >> 23) + 1).clamp_(max=255)

# SPDX-License-Identifier: BSD-3-Clause
"""Scales that are powers of two, by their exponents."""

from __future__ import annotations

import torch
from torch import Tensor


def exponents_above(scales: Tensor) -> Tensor:
    """The exponents, with their bias of 127, of the least powers of two that are not below.

    Scales are float32 and positive; exponents are int32, 255 and more for infinity and NaN.
    """
    bits = scales.view(torch.int32)
    return (bits >> 23) + ((bits & 0x7FFFFF) != 0).to(torch.int32)

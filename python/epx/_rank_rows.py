# SPDX-License-Identifier: BSD-3-Clause
"""What torch computes behind a dispatch: where the rows of each rank begin."""

from __future__ import annotations

import torch
from torch import Tensor


def add_up_ranks(rows: Tensor, row_experts: Tensor | None, capacity: int) -> None:
    """Makes first rows of a 0 and the rows of each rank; -1 for experts of rows that are none."""
    rows.cumsum_(0)
    rows.clamp_(max=capacity)
    if row_experts is None:
        return
    unused = torch.arange(capacity, device=rows.device) >= rows[-1]
    row_experts.masked_fill_(unused[:, None], -1)

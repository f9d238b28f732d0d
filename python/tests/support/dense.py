# SPDX-License-Identifier: BSD-3-Clause
"""What every rank must see: all tokens of all ranks on one rank, in plain torch."""

from typing import NamedTuple

import torch
from slots import expert_rows, first_expert, num_tokens, rank_rows, slab_rows
from torch import Tensor

__all__ = [
    "Tokens",
    "expert_rows",
    "first_expert",
    "layer",
    "num_tokens",
    "rank_rows",
    "slab_rows",
    "tokens_of",
]


class Tokens(NamedTuple):
    x: Tensor  # [T, H] float64
    ids: Tensor  # [T, K] int64
    weights: Tensor  # [T, K] float32
    grad: Tensor  # [T, H] float64, that of the sums


def tokens_of(rank: int, shape: tuple[int, int, int, int], seed: int = 1) -> Tokens:
    """The tokens of a rank; shape is T, H, K, E. Small integers: all dtypes hold them exactly.

    Some ids are -1, and some tokens name an expert twice.
    """
    num, hidden, top_k, experts = shape
    made = torch.Generator().manual_seed(1000 * seed + rank)
    with torch.device("cpu"):
        ids = torch.randint(0, experts, (num, top_k), generator=made)
        ids[torch.rand((num, top_k), generator=made) < 0.15] = -1
        if top_k > 1 and num > 1:
            ids[1, :] = ids[1, 0]
        x = torch.randint(-4, 5, (num, hidden), generator=made).double()
        weights = torch.randint(1, 5, (num, top_k), generator=made).float() / 4
        grad = torch.randint(-2, 3, (num, hidden), generator=made).double()
    return Tokens(*(each.to(torch.get_default_device()) for each in (x, ids, weights, grad)))


def layer(x: Tensor, ids: Tensor, weights: Tensor, matrices: Tensor) -> Tensor:
    """The dense layer: the sum over choices of weight * tanh(x @ matrix of the expert)."""
    every = torch.tanh(torch.einsum("th,ehg->teg", x, matrices))
    chosen = torch.where(ids >= 0, weights.to(x.dtype), 0)
    picked = every[torch.arange(len(x))[:, None], ids.clamp(min=0)]
    return (picked * chosen[:, :, None]).sum(1)

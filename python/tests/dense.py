# SPDX-License-Identifier: BSD-3-Clause
"""What every rank must see: all tokens of all ranks on one rank, in plain torch."""

from typing import NamedTuple

import torch
from torch import Tensor


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


def num_tokens(rank: int) -> int:
    """T differs by rank, and is 0 on rank 1."""
    return 0 if rank == 1 else 5 + 3 * rank


def first_expert(rank: int, experts: int, ranks: int) -> int:
    return rank * experts // ranks


def expert_rows(every: list[Tokens], local: range, alignment: int) -> tuple[list, list, list]:
    """What a rank receives in expert-major: a list of (rank, token, choice) or None for padding;
    counts; offsets."""
    rows, counts, offsets = [], [], []
    for expert in local:
        slab = [
            (rank, token, choice)
            for rank, tokens in enumerate(every)
            for token, row in enumerate(tokens.ids.tolist())
            for choice, named in enumerate(row)
            if named == expert
        ]
        offsets.append(len(rows))
        counts.append(len(slab))
        rows += slab + [None] * (-len(slab) % alignment)
    return rows, counts, [*offsets, len(rows)]


def rank_rows(every: list[Tokens], local: range) -> tuple[list, list, list]:
    """The same in rank-major: a list of (rank, token, local experts); counts; offsets by rank."""
    rows, offsets = [], [0]
    counts = [0] * len(local)
    for rank, tokens in enumerate(every):
        for token, row in enumerate(tokens.ids.tolist()):
            experts = [local.index(named) if named in local else -1 for named in row]
            for expert in experts:
                if expert >= 0:
                    counts[expert] += 1
            if any(expert >= 0 for expert in experts):
                rows.append((rank, token, experts))
        offsets.append(len(rows))
    return rows, counts, offsets


def layer(x: Tensor, ids: Tensor, weights: Tensor, matrices: Tensor) -> Tensor:
    """The dense layer: the sum over choices of weight * tanh(x @ matrix of the expert)."""
    every = torch.tanh(torch.einsum("th,ehg->teg", x, matrices))
    chosen = torch.where(ids >= 0, weights.to(x.dtype), 0)
    picked = every[torch.arange(len(x))[:, None], ids.clamp(min=0)]
    return (picked * chosen[:, :, None]).sum(1)

# SPDX-License-Identifier: BSD-3-Clause
"""What tests of deep_ep send, and what must come home, in plain torch on the host."""

from typing import NamedTuple

import torch
from torch import Tensor


class Sent(NamedTuple):
    """Tokens of a rank as DeepEP takes them: some choices are -1, and none is there twice."""

    x: Tensor  # [T, H] bfloat16
    ids: Tensor  # [T, K] int64
    weights: Tensor  # [T, K] float32
    bias: tuple[Tensor, Tensor]  # [T, H] bfloat16


def sent_by(rank: int, shape: tuple[int, int, int, int], seed: int = 1) -> Sent:
    """The tokens of a rank; shape is T, H, K, E."""
    num, hidden, top_k, experts = shape
    made = torch.Generator().manual_seed(1000 * seed + rank)
    with torch.device("cpu"):
        x = torch.randn((num, hidden), generator=made).bfloat16()
        ids = torch.rand((num, experts), generator=made).argsort(1)[:, :top_k].contiguous()
        ids[torch.rand((num, top_k), generator=made) < 0.2] = -1
        weights = torch.rand((num, top_k), generator=made)
        weights[ids < 0] = 0
        bias = tuple(torch.randn((num, hidden), generator=made).bfloat16() for _ in range(2))
    return Sent(x, ids, weights, bias)


def here(sent: Sent) -> Sent:
    """The same on the default device."""
    device = torch.get_default_device()
    moved = (each.to(device) for each in sent[:3])
    return Sent(*moved, tuple(each.to(device) for each in sent.bias))


def sums(sent: Sent, rows: Tensor, per_rank: int, biases: tuple[Tensor, ...]) -> Tensor:
    """What combine makes of rows [T, K, H] bfloat16, one a choice.

    Each rank adds its choices in their order and rounds; the biases and these sums are added in the
    order of each rank's last choice, and rounded once.
    """
    made = torch.zeros(sent.x.shape, dtype=torch.bfloat16, device="cpu")
    for token, ids in enumerate(sent.ids.tolist()):
        partial: dict[int, Tensor] = {}
        for choice, expert in enumerate(ids):
            if expert < 0:
                continue
            before = partial.pop(expert // per_rank, None)  # the last choice says the order
            row = rows[token, choice].cpu().float()
            partial[expert // per_rank] = row if before is None else before + row
        terms = (
            [sum((each[token].float() for each in biases[1:]), biases[0][token].float())]
            if (biases)
            else []
        )
        terms += [each.bfloat16().float() for each in partial.values()]
        total = torch.zeros(sent.x.shape[1], device="cpu")
        for at, term in enumerate(terms):
            total = term if at == 0 else total + term
        made[token] = total.bfloat16()
    return made

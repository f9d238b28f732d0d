# SPDX-License-Identifier: BSD-3-Clause
"""How a rank keeps the experts of its neighbour, and how experts change their owners.

For train_torch.py. An expert is a row: its number, its weights and Adam's two averages of each. All
other parameters, with their averages, are the same on all ranks: the dense part. Rows travel on the
host, by a communicator there.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

import epx

Adam = torch.optim.Adam
Parameters = list[torch.nn.Parameter]


class Saved(NamedTuple):
    """What a rank knows after a step: the dense part, its experts, and those of its neighbour."""

    step: int
    dense: Tensor
    own: Tensor
    neighbours: Tensor


def _parts(parameter: torch.nn.Parameter, optimizer: Adam) -> list[Tensor]:
    """The parameter and its averages. Those of a new optimizer are 0."""
    state = optimizer.state[parameter]
    if not state:
        state["step"] = torch.zeros(())
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = torch.zeros_like(parameter)
    return [parameter.detach(), state["exp_avg"], state["exp_avg_sq"]]


def dense_part(parameters: Parameters, optimizer: Adam) -> Tensor:
    """A copy of the dense parameters and their averages, one after the other."""
    return torch.cat([part.flatten() for p in parameters for part in _parts(p, optimizer)])


def rows_of(experts: Parameters, optimizer: Adam, first: int) -> Tensor:
    """A copy of this rank's experts on the host, a row each, from number ``first`` on."""
    numbers = first + torch.arange(len(experts[0]), dtype=torch.float32)
    parts = [part.flatten(1).cpu() for p in experts for part in _parts(p, optimizer)]
    return torch.cat([numbers[:, None], *parts], dim=1)


def load(
    dense: Parameters, experts: Parameters, optimizer: Adam, saved: tuple[Tensor, Tensor], step: int
) -> None:
    """Go on from a dense part and rows of experts as they were after so many steps."""
    words = saved[0]
    for parameter in dense:
        for part in _parts(parameter, optimizer):
            part.copy_(words[: part.numel()].view_as(part))
            words = words[part.numel() :]
    columns = saved[1][:, 1:]
    for parameter in experts:
        for part in _parts(parameter, optimizer):
            width = part[0].numel()
            part.copy_(columns[:, :width].reshape(part.shape))
            columns = columns[:, width:]
    for parameter in (*dense, *experts):
        optimizer.state[parameter]["step"].fill_(step)


def ring(comm: epx.Comm) -> epx.Graph:
    """Every rank sends to the next one, which keeps what it gets."""
    return epx.Graph(comm, [(comm.rank - 1) % comm.size], [(comm.rank + 1) % comm.size])


def keep(rows: Tensor, graph: epx.Graph) -> Tensor:
    """The rows of the rank before this one. Collective."""
    theirs, _ = epx.numpy.neighbor_alltoallv(rows.numpy(), [len(rows)], graph)
    return torch.from_numpy(theirs)


def brought(saved: Saved, old: epx.Comm, new: epx.Comm) -> Tensor:
    """What this rank brings to the new communicator: its experts, and those of a dead neighbour."""
    before = (old.rank - 1) % old.size
    return saved.own if before in new.ranks else torch.cat([saved.own, saved.neighbours])


def deal(rows: Tensor, comm: epx.Comm, experts: int) -> Tensor:
    """The rows of the experts that this rank owns in the communicator. Collective."""
    rows = rows[rows[:, 0].argsort()]
    ends = [(rank + 1) * experts // comm.size for rank in range(comm.size)]
    bounds = torch.searchsorted(rows[:, 0].contiguous(), torch.tensor([0, *ends]).float())
    mine, _ = epx.numpy.alltoallv(rows.numpy(), bounds.diff().numpy(), comm)
    dealt = torch.from_numpy(mine)
    dealt = dealt[dealt[:, 0].argsort()]
    first = comm.rank * experts // comm.size
    if dealt[:, 0].tolist() != list(range(first, ends[comm.rank])):
        raise RuntimeError("experts are lost: two ranks died, of which one kept the other's")
    return dealt

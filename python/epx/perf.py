# SPDX-License-Identifier: BSD-3-Clause
"""usage: mpiexec -n RANKS python -m epx.perf [REPEATS]

Prints, in microseconds of rank 0, what ops of epx.torch take, the part of it inside the calls of
EPX, and the rest for each op: what Python and torch add. Each figure is the median of 5 loops of
REPEATS calls (2000 if not given).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch

from epx import _core
from epx import torch as ep

TOKENS, HIDDEN, TOP_K, EXPERTS = 4, 8, 2, 4


class Clock:
    """Stands for the call of EPX, and counts the calls and the time in them."""

    def __init__(self) -> None:
        self.call = _core._run
        self.calls, self.seconds = 0, 0.0

    def __call__(self, members: bytes) -> int:
        begin = time.perf_counter()
        code = self.call(members)
        self.seconds += time.perf_counter() - begin
        self.calls += 1
        return code


def loop(call: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Microseconds of a call, inside EPX, and of the rest for each op in it."""
    clock = Clock()
    _core._run = clock
    try:
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        whole = time.perf_counter() - begin
    finally:
        _core._run = clock.call
    rest = (whole - clock.seconds) / clock.calls
    return whole / repeats * 1e6, clock.seconds / repeats * 1e6, rest * 1e6


def main() -> None:
    """Print the table."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    torch.set_num_threads(1)
    with _core.Comm() as comm:
        route = _core.Route(comm, EXPERTS, TOP_K, TOKENS)
        ids = torch.arange(TOKENS * TOP_K).reshape(TOKENS, TOP_K) % EXPERTS
        x, weights = torch.randn(TOKENS, HIDDEN), torch.rand(TOKENS, TOP_K)
        grad = torch.ones(TOKENS, HIDDEN)

        def dispatch() -> tuple[torch.Tensor, torch.Tensor | None, ep.Routing]:
            return ep.dispatch(x, ids, weights, route)

        def layer() -> torch.Tensor:
            rows, row_weights, routing = dispatch()
            return ep.combine(rows, routing, row_weights)

        def step() -> None:
            torch.autograd.backward(layer(), grad)

        def show(name: str, call: Callable[[], object]) -> None:
            call()
            loops = sorted(loop(call, repeats) for _ in range(5))
            if comm.rank == 0:
                figures = [statistics.median(column) for column in zip(*loops)]
                print(f"{name:42s}" + "".join(f"{figure:10.1f}" for figure in figures))

        if comm.rank == 0:
            print(f"{'us, ' + str(comm.size) + ' ranks':42s}     whole    in EPX   rest/op")
        show("dispatch", dispatch)
        show("dispatch, combine", layer)
        x.requires_grad_()
        weights.requires_grad_()
        show("dispatch for gradients", dispatch)
        show("dispatch, combine for gradients", layer)
        show("dispatch, combine and their backwards", step)


if __name__ == "__main__":
    main()

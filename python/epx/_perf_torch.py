# SPDX-License-Identifier: BSD-3-Clause
"""What epx.perf measures of torch."""

from __future__ import annotations

from typing import Any, cast

import torch

from epx import _core, _perf, launch
from epx import torch as ep
from epx._perf import COMBINE, COMBINE_BACKWARD, DISPATCH, DISPATCH_BACKWARD, Case, Figure

_WITHOUT, _WITH = 25.0, 50.0  # us an op over C at most, without and with gradients
_REPLAY = 2.0  # % that a replay may take longer


def version() -> str:
    """The version of torch."""
    return torch.__version__


def prepare(device: str) -> None:
    """Choose this rank's GPU, before the communicator is made."""
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(launch.local_rank() % torch.cuda.device_count())


def _backend(device: str) -> _perf.Backend:
    if device == "cpu":
        return _perf.host_backend()
    kept: list[torch.Tensor] = []

    def place(data: bytes) -> int:
        kept.append(torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8).to(device))
        return kept[-1].data_ptr()

    return _perf.Backend(place, torch.cuda.synchronize)


class _Calls:
    """The calls of a layer by torch, for gradients if those are wanted."""

    def __init__(self, route: _core.Route, device: str, wanted: bool) -> None:
        self.route = route
        self.ids = torch.tensor(_perf.ids_of(route.comm.rank), device=device)
        shape = _perf.TOKENS, _perf.HIDDEN
        self.x = torch.randn(shape, device=device, requires_grad=wanted)
        weights = torch.rand(_perf.TOKENS, _perf.TOP_K, device=device)
        self.weights = weights.requires_grad_(wanted)
        self.grad = torch.ones(shape, device=device)
        self.made = self.dispatch()

    def dispatch(self) -> tuple[torch.Tensor, torch.Tensor | None, ep.Routing]:
        return ep.dispatch(self.x, self.ids, self.weights, self.route)

    def combine(self) -> torch.Tensor:
        rows, row_weights, routing = self.made
        return ep.combine(rows, routing, row_weights)

    def layer(self) -> torch.Tensor:
        rows, row_weights, routing = self.dispatch()
        return ep.combine(rows, routing, row_weights)

    def step(self) -> None:
        torch.autograd.backward(self.layer(), self.grad)


def _cases(plain: _Calls, wanted: _Calls) -> list[Case]:
    pair = (DISPATCH, COMBINE)
    return [
        Case("dispatch", (DISPATCH,), plain.dispatch, _WITHOUT),
        Case("combine", (COMBINE,), plain.combine, _WITHOUT),
        Case("layer", pair, plain.layer, _WITHOUT),
        Case("dispatch for gradients", (DISPATCH,), wanted.dispatch, _WITH),
        Case("layer for gradients", pair, wanted.layer, _WITH),
        Case(
            "layer and its backward",
            (*pair, COMBINE_BACKWARD, DISPATCH_BACKWARD),
            wanted.step,
            _WITH,
        ),
    ]


def _replay_us(graph: torch.cuda.CUDAGraph, repeats: int) -> float:
    begin, end = (cast(Any, torch.cuda.Event)(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / repeats * 1e3


def _graph_of_torch(calls: _Calls) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls.layer()
    return graph


def _graph_of_c(comm: _core.Comm, backend: _perf.Backend) -> torch.cuda.CUDAGraph:
    stream, graph = cast(Any, torch.cuda.Stream)(), torch.cuda.CUDAGraph()
    layer = _perf.Layer(comm, backend, stream.cuda_stream)
    layer.repeat((DISPATCH, COMBINE), 1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        layer.repeat((DISPATCH, COMBINE), 1)
    return graph


def _graph_figure(
    comm: _core.Comm, backend: _perf.Backend, calls: _Calls, options: _perf.Options
) -> Figure:
    graphs = _graph_of_c(comm, backend), _graph_of_torch(calls)
    loops = [[_replay_us(g, options.repeats) for g in graphs] for _ in range(options.loops)]
    c, here = (min(column) for column in zip(*loops))
    return Figure("torch", "graph of a layer", 2, c, here, (here / c - 1) * 100, _REPLAY, "%")


def figures(comm: _core.Comm, device: str, options: _perf.Options) -> list[Figure]:
    """The rows of torch."""
    backend = _backend(device)
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else 0
    layer = _perf.Layer(comm, backend, stream)
    route = _core.Route(comm, _perf.EXPERTS, _perf.TOP_K, _perf.TOKENS)
    plain, wanted = (_Calls(route, device, each) for each in (False, True))
    made = _perf.figures_of("torch", _cases(plain, wanted), layer, backend, options)
    if device == "cuda":
        made.append(_graph_figure(comm, backend, plain, options))
    return made

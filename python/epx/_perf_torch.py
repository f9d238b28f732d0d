# SPDX-License-Identifier: BSD-3-Clause
"""What epx.perf measures of torch."""

from __future__ import annotations

from typing import Any, cast

import torch

from epx import _perf, launch
from epx import torch as ep
from epx._comm import Comm
from epx._perf import COMBINE, COMBINE_BACKWARD, DISPATCH, DISPATCH_BACKWARD, Case, Figure, Shape
from epx._route import Route

_WITHOUT, _WITH = 25.0, 50.0  # us an op over C at most, without and with gradients
_REPLAY = 2.0  # % that a replay may take longer
_GRAPHS = [_perf.SMALL, Shape(128, 7168, 8, 256, "bfloat16"), Shape(8192, 7168, 8, 256, "bfloat16")]


def version() -> str:
    """The version of torch."""
    return torch.__version__


def prepare(device: str) -> int | None:
    """Choose this rank's GPU, and return its number."""
    torch.set_num_threads(1)
    if device == "cpu":
        return None
    torch.cuda.set_device(launch.local_rank() % torch.cuda.device_count())
    torch.cuda.set_stream(cast(Any, torch.cuda.Stream)())  # nccl wants one of its own
    return torch.cuda.current_device()


def _backend(device: str) -> _perf.Backend:
    if device == "cpu":
        return _perf.host_backend()
    kept: list[torch.Tensor] = []

    def place(data: bytes) -> int:
        kept.append(torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8).to(device))
        return kept[-1].data_ptr()

    def zeros(size: int) -> int:
        kept.append(torch.zeros(max(size, 1), dtype=torch.uint8, device=device))
        return kept[-1].data_ptr()

    return _perf.Backend(place, zeros, torch.cuda.synchronize)


class _Calls:
    """The calls of a layer by torch, for gradients if those are wanted."""

    def __init__(self, route: Route, device: str, shape: Shape, wanted: bool) -> None:
        self.route = route
        self.ids = torch.tensor(shape.ids(route.comm.rank), device=device)
        dtype = getattr(torch, shape.dtype)
        self.x = torch.randn(
            shape.tokens, shape.hidden, device=device, dtype=dtype, requires_grad=wanted
        )
        weights = torch.rand(shape.tokens, shape.top_k, device=device)
        self.weights = weights.requires_grad_(wanted)
        self.grad = torch.ones_like(self.x)
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


def _graph_of_c(layer: _perf.Layer, stream: torch.cuda.Stream) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    layer.repeat((DISPATCH, COMBINE), 1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        layer.repeat((DISPATCH, COMBINE), 1)
    return graph


def _graph_figure(comm: Comm, shape: Shape, options: _perf.Options) -> Figure:
    stream = cast(Any, torch.cuda.Stream)()
    layer = _perf.Layer(comm, _backend("cuda"), stream.cuda_stream, shape, copies_counts=False)
    calls = _Calls(shape.make_route(comm), "cuda", shape, False)
    graphs = _graph_of_c(layer, stream), _graph_of_torch(calls)  # which use layer and calls
    loops = [[_replay_us(g, options.repeats) for g in graphs] for _ in range(options.loops)]
    c, here = (min(column) for column in zip(*loops))
    name = f"graph of {shape.tokens} tokens"
    return Figure("torch", name, 2, c, here, (here / c - 1) * 100, _REPLAY, "%")


def figures(comm: Comm, device: str, options: _perf.Options) -> list[Figure]:
    """The rows of torch."""
    backend = _backend(device)
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else 0
    layer = _perf.Layer(comm, backend, stream)
    route = _perf.SMALL.make_route(comm)
    plain, wanted = (_Calls(route, device, _perf.SMALL, each) for each in (False, True))
    made = _perf.figures_of("torch", _cases(plain, wanted), layer, backend, options)
    if device == "cuda":
        made += [_graph_figure(comm, shape, options) for shape in _GRAPHS]
    return made

# SPDX-License-Identifier: BSD-3-Clause
"""What epx.perf measures of torch."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from epx import _perf, launch
from epx import torch as ep
from epx._comm import Comm
from epx._eager import empty, host_word
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
    kept: list[Tensor] = []

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

    def dispatch(self) -> tuple[Tensor, Tensor | None, ep.Routing]:
        return ep.dispatch(self.x, self.ids, self.weights, self.route)

    def combine(self) -> Tensor:
        rows, row_weights, routing = self.made
        return ep.combine(rows, routing, row_weights)

    def layer(self) -> Tensor:
        rows, row_weights, routing = self.dispatch()
        return ep.combine(rows, routing, row_weights)

    def step(self) -> None:
        torch.autograd.backward(self.layer(), self.grad)


class _EmptyDispatch(torch.autograd.Function):
    """Makes tensors as large as those of dispatch, and calls nothing."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ids: Tensor, weights: Tensor, capacity: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(ids, host_word(x))
        empty(x, (ids.shape[0],), torch.int32)
        return (
            empty(x, (capacity, x.shape[1]), x.dtype),
            empty(x, (capacity,), torch.float32),
            empty(x, (0,), torch.float32),
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        ids, _key = ctx.saved_tensors
        return (
            empty(grad, (ids.shape[0], grad.shape[1]), grad.dtype),
            None,
            empty(grad, tuple(ids.shape), torch.float32),
            None,
        )


class _EmptyCombine(torch.autograd.Function):
    """The same of combine."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, row_weights: Tensor, ids: Tensor, tie: Tensor) -> Tensor:
        ctx.save_for_backward(ids, y, row_weights)
        return empty(y, (ids.shape[0], y.shape[1]), y.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        _ids, y, row_weights = ctx.saved_tensors
        return (
            empty(grad, tuple(y.shape), grad.dtype),
            empty(grad, tuple(row_weights.shape), torch.float32),
            None,
            empty(grad, (0,), torch.float32),
        )


class _Empty(_Calls):
    """A layer of PyTorch alone: what is left of a layer if its ops do nothing."""

    def layer(self) -> Tensor:
        given = self.x, self.ids, self.weights, self.route.capacity
        rows, row_weights, tie = cast(Any, _EmptyDispatch).apply(*given)
        return cast(Tensor, cast(Any, _EmptyCombine).apply(rows, row_weights, self.ids, tie))


def _empty_figures(
    route: Route, device: str, backend: _perf.Backend, options: _perf.Options
) -> list[Figure]:
    empty_layer = _Empty(route, device, _perf.SMALL, True)
    made = []
    for name, ops, call in (
        ("layer, empty functions", 2, empty_layer.layer),
        ("and its backward, empty functions", 4, empty_layer.step),
    ):
        loops = range(options.loops)
        here = min(_perf.seconds_of(call, options.repeats, backend.finish) for _ in loops) * 1e6
        made.append(Figure("torch", name, ops, 0.0, here, here / ops, None, "us"))
    return made


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
    made += _empty_figures(route, device, backend, options)
    if device == "cuda":
        made += [_graph_figure(comm, shape, options) for shape in _GRAPHS]
    return made

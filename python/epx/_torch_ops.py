# SPDX-License-Identifier: BSD-3-Clause
"""The ops of epx.torch: what they return, and the calls of EPX behind them.

An op on CUDA tensors queues on the current stream, and the host does not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from epx._comm import Comm
from epx._core import Code, EPXError, run, start
from epx._route import Route, routes
from epx._window import receive_buffer

DISPATCH, COMBINE, DISPATCH_BACKWARD, COMBINE_BACKWARD = range(4)

_TYPES = {
    torch.uint8: 1,
    torch.float8_e4m3fn: 2,
    torch.float8_e5m2: 3,
    torch.float16: 4,
    torch.bfloat16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.int32: 32,
    torch.int64: 64,
}
_UNKNOWN_TYPE = 99

Dispatched = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Members = tuple[int, int, int, int]
_NONE: Members = (0, 0, 0, 0)


class Started:
    """An operation that began: its number, the stream it is on, and the tensors that it uses."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self.stream = stream
        self.number = 0
        self.tensors: list[Tensor] = []


class _Call(NamedTuple):
    """What an operation of a route is about, beside its tensors of rows and weights."""

    verb: int
    route: int
    capacity: int
    ids: Tensor
    key: Tensor
    started: Started | None


def _members(name: str, tensor: Tensor | None) -> Members:
    if tensor is None:
        return _NONE
    shape = tensor.shape
    if not 1 <= len(shape) <= 2:
        raise EPXError(Code.COUNT, f"{name} has {len(shape)} dimensions, want 2")
    return (
        tensor.data_ptr(),
        shape[0],
        shape[1] if len(shape) == 2 else 1,
        _TYPES.get(tensor.dtype, _UNKNOWN_TYPE),
    )


def route_of(index: int) -> Route:
    """The route with the index; an error if it is freed."""
    route = routes.get(index)
    if route is None:
        raise EPXError(Code.ROUTE, "the route is freed")
    return route


def _stream_for(call: _Call) -> int:
    """The stream to queue on: the current one, or that of an operation that only begins."""
    on_device = call.ids.is_cuda
    comm = route_of(call.route).comm
    if on_device != comm.on_device:
        raise EPXError(
            Code.BUFFER, f"tensors on {call.ids.device}, the communicator's are {comm.memory}"
        )
    if not on_device:
        return 0
    if call.started is None or call.started.stream is None:
        stream: int = torch._C._cuda_getCurrentRawStream(call.ids.device.index)
        return stream
    call.started.stream.wait_stream(torch.cuda.current_stream(call.ids.device))
    return call.started.stream.cuda_stream


def _compact(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _operate(
    call: _Call,
    tensors: tuple[Tensor | None, ...],
    names: tuple[str, str, str, str, str],
    view: tuple[int, int, int] = (0, 0, 0),
    scales: tuple[Tensor | None, Tensor | None] = (None, None),
) -> None:
    """Calls EPX: tensors are the input, weights, rows, output and weights of the output.

    Scales are those of the input, and of the output.
    """
    key = call.key
    if not key.is_cpu or key.dtype != torch.int64 or key.numel() != 1:
        raise EPXError(
            Code.BUFFER,
            f"routing.key is {key.dtype} {list(key.shape)} on {key.device}, want int64 [1] on the "
            "host, as dispatch returned it",
        )
    ids = call.ids.contiguous()
    compact = [*map(_compact, tensors[:3]), *tensors[3:], _compact(scales[0]), scales[1]]
    named = (*names, "scales", "row_scales")
    described = [n for pair in zip(named, compact) for n in _members(*pair)]
    stream = _stream_for(call)
    given = (call.verb, call.route, call.capacity, stream, call.key.data_ptr(), *view)
    members = (*given, *_members("ids", ids), *described)
    if call.started is None:
        run(members)
        return
    call.started.tensors += [ids, call.key, *(t for t in compact if t is not None)]
    try:
        call.started.number = start(members)
    finally:
        if not call.started.number and call.started.stream is not None:
            torch.cuda.current_stream(ids.device).wait_stream(call.started.stream)


def _dispatch_outputs(
    x: Tensor,
    weights: Tensor | None,
    scales: Tensor | None,
    index: int,
    capacity: int,
    comm: Comm | None = None,
) -> Dispatched:
    route = route_of(index)
    is_rank_major = route.layout == "rank"
    if x.dim() != 2:
        raise EPXError(Code.COUNT, f"x has {x.dim()} dimensions, want 2")
    if scales is not None and scales.dim() != 2:
        raise EPXError(Code.COUNT, f"scales has {scales.dim()} dimensions, want 2")
    shape = (capacity, route.top_k) if is_rank_major else (capacity,)
    num_offsets = 1 + (route.comm.size if is_rank_major else route.local_experts)
    integer = torch.int32
    return (
        receive_buffer(x, (capacity, x.shape[1]), comm),
        x.new_empty(shape if weights is not None else (0,), dtype=torch.float32),
        torch.empty((1,), dtype=torch.int64, device="cpu"),
        x.new_empty(route.local_experts + num_offsets, dtype=integer),
        x.new_empty(capacity if is_rank_major else 0, route.top_k, dtype=integer),
        x.new_empty(0, dtype=torch.float32),
        x.new_empty(0, dtype=torch.float32)
        if scales is None
        else receive_buffer(scales, (capacity, scales.shape[1]), comm),
    )


def _add_up_ranks(rows: Tensor, row_experts: Tensor, capacity: int) -> None:
    """Makes first rows of a 0 and the rows of each rank; -1 for experts of rows that are none."""
    rows.cumsum_(0)
    rows.clamp_(max=capacity)
    unused = torch.arange(capacity, device=rows.device) >= rows[-1]
    row_experts.masked_fill_(unused[:, None], -1)


def _dispatch(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    index: int,
    capacity: int,
    scales: Tensor | None = None,
    started: Started | None = None,
) -> Dispatched:
    route = route_of(index)
    made = _dispatch_outputs(x, weights, scales, index, capacity, route.comm)
    rows, row_weights, key, info, row_experts, _, row_scales = made
    num_experts = route.local_experts
    _operate(
        _Call(DISPATCH, index, capacity, ids, key, started),
        (x, weights, None, rows, None if weights is None else row_weights),
        ("x", "weights", "none", "rows", "row_weights"),
        (info.data_ptr(), info.data_ptr() + 4 * num_experts, row_experts.data_ptr()),
        (None, None) if scales is None else (scales, row_scales),
    )
    if started is not None:
        started.tensors += made
    elif row_experts.shape[0]:
        _add_up_ranks(info[num_experts:], row_experts, capacity)
    return made


def _combine_output(y: Tensor, ids: Tensor) -> Tensor:
    if y.dim() != 2:
        raise EPXError(Code.COUNT, f"y has {y.dim()} dimensions, want 2")
    return y.new_empty(ids.shape[0], y.shape[1])


def _combine(
    y: Tensor,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    tie: Tensor,
    index: int,
    capacity: int,
    started: Started | None = None,
) -> Tensor:
    out = _combine_output(y, ids)
    _operate(
        _Call(COMBINE, index, capacity, ids, key, started),
        (y, row_weights, None, out, None),
        ("y", "row_weights", "none", "out", "none"),
    )
    return out


def _dispatch_backward_outputs(
    grad_rows: Tensor, grad_row_weights: Tensor | None, ids: Tensor
) -> tuple[Tensor, Tensor]:
    shape = (0,) if grad_row_weights is None else tuple(ids.shape)
    return (
        grad_rows.new_empty((ids.shape[0], grad_rows.shape[1])),
        grad_rows.new_empty(shape, dtype=torch.float32),
    )


def _dispatch_backward(
    grad_rows: Tensor,
    grad_row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    index: int,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    made = _dispatch_backward_outputs(grad_rows, grad_row_weights, ids)
    _operate(
        _Call(DISPATCH_BACKWARD, index, capacity, ids, key, None),
        (
            grad_rows,
            grad_row_weights,
            None,
            made[0],
            None if grad_row_weights is None else made[1],
        ),
        ("grad of rows", "grad of row_weights", "none", "grad of x", "grad of weights"),
    )
    return made


def _combine_backward_outputs(
    grad: Tensor, y: Tensor | None, capacity: int, comm: Comm | None = None
) -> tuple[Tensor, Tensor]:
    return (
        receive_buffer(grad, (capacity, grad.shape[1]), comm),
        grad.new_empty((0,) if y is None else (capacity,), dtype=torch.float32),
    )


def _combine_backward(
    grad: Tensor,
    y: Tensor | None,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    index: int,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    comm = None if grad.is_cpu else route_of(index).comm  # transports of hosts stage it anyway
    made = _combine_backward_outputs(grad, y, capacity, comm)
    _operate(
        _Call(COMBINE_BACKWARD, index, capacity, ids, key, None),
        (grad, row_weights, y, made[0], None if y is None else made[1]),
        ("grad of out", "row_weights", "y", "grad of y", "grad of row_weights"),
    )
    return made


class _Op(NamedTuple):
    """An op; its fake makes the outputs, of tensors without memory, from the same arguments."""

    schema: str
    kernel: Callable[..., Any]
    fake: Callable[..., Any]


_OPS = {
    "dispatch": _Op(
        "(Tensor x, Tensor ids, Tensor? weights, int route, SymInt capacity, Tensor? scales=None)"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        _dispatch,
        lambda x, ids, weights, index, capacity, scales=None: _dispatch_outputs(
            x, weights, scales, index, capacity
        ),
    ),
    "combine": _Op(
        "(Tensor y, Tensor? row_weights, Tensor ids, Tensor key, Tensor tie, int route,"
        " SymInt capacity) -> Tensor",
        _combine,
        lambda y, row_weights, ids, *_: _combine_output(y, ids),
    ),
    "dispatch_backward": _Op(
        "(Tensor grad_rows, Tensor? grad_row_weights, Tensor ids, Tensor key, int route,"
        " SymInt capacity) -> (Tensor, Tensor)",
        _dispatch_backward,
        lambda grad, weights, ids, *_: _dispatch_backward_outputs(grad, weights, ids),
    ),
    "combine_backward": _Op(
        "(Tensor grad, Tensor? y, Tensor? row_weights, Tensor ids, Tensor key, int route,"
        " SymInt capacity) -> (Tensor, Tensor)",
        _combine_backward,
        lambda grad, y, *rest: _combine_backward_outputs(grad, y, rest[-1]),
    ),
}
library: Any = cast(Any, torch.library.Library)("epx", "DEF")
for _name, _op in _OPS.items():
    library.define(_name + _op.schema)
    library.impl(_name, _op.kernel, "CPU")
    library.impl(_name, _op.kernel, "CUDA")
    torch.library.register_fake(f"epx::{_name}", _op.fake, lib=library)

dispatch = torch.ops.epx.dispatch.default
combine = torch.ops.epx.combine.default
dispatch_backward = torch.ops.epx.dispatch_backward.default
combine_backward = torch.ops.epx.combine_backward.default
start_dispatch, start_combine, add_up_ranks = _dispatch, _combine, _add_up_ranks

# SPDX-License-Identifier: BSD-3-Clause
"""The ops of epx.torch: what they return, and the calls of EPX behind them.

An op on CUDA tensors queues on the current stream, and the host does not wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.utils.checkpoint import CheckpointPolicy

from epx._arena import Arena
from epx._core import Code, EPXError, run, start, wait
from epx._eager import empty, host_word
from epx._rank_rows import add_up_ranks
from epx._route import Route, routes
from epx._window import receive_buffer

DISPATCH, COMBINE, DISPATCH_BACKWARD, COMBINE_BACKWARD, ROUTE, DISPATCH_BY = range(6)
MOST_FIELDS = 3  # beside the rows of a dispatch
MOST_BIASES = 2  # of a combine

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

Made = tuple[Any, ...]
"""What dispatch makes, in the order of the op's results: rows, their weights, key, counts and
offsets in one, local experts of the rows, tie, and the rows of each field. None where there is
nothing; an op has tensors without elements there."""
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
    key: Tensor
    started: Started | None


# How errors call the tensors of an operation: those of struct epx_python_operation, in its order.
_FIELDS = ("scales", "scales[1]", "scales[2]")
_NAMES = {
    DISPATCH: ("ids", "x", "weights", "", "rows", "row_weights", *_FIELDS),
    DISPATCH_BY: ("routing.ids", "x", "weights", "", "rows", "row_weights", *_FIELDS),
    ROUTE: ("ids",),
    COMBINE: ("ids", "y", "row_weights", "", "out", "", "bias", "bias[1]", "token_weights"),
    DISPATCH_BACKWARD: (
        *("ids", "grad of rows", "grad of row_weights", ""),
        *("grad of x", "grad of weights"),
    ),
    COMBINE_BACKWARD: (
        *("ids", "grad of out", "row_weights", "y"),
        *("grad of y", "grad of row_weights"),
    ),
}


def _in_memory(name: str, tensor: Tensor) -> Tensor:
    """A tensor whose memory has its elements, one behind the other.

    What PyTorch's dispatcher does for an op: the short way past it comes here too.
    """
    try:
        if tensor.is_contiguous() and not tensor.is_neg() and tensor.data_ptr():
            return tensor
        dense = tensor.contiguous().resolve_neg()
        if dense._is_zerotensor():
            dense = dense.clone()
        has_memory = dense.data_ptr() or not dense.numel()
    except RuntimeError as error:
        raise EPXError(
            Code.BUFFER, f"{name} is no dense tensor, its layout is {tensor.layout}: {error}"
        ) from error
    if not has_memory:
        raise EPXError(Code.BUFFER, f"{name} has no memory")
    return dense


_MADE = (4, 5, 9, 10, 11)  # which tensors of an operation EPX writes: they were made for it


def _describe(members: list[int], verb: int, tensors: tuple[Tensor | None, ...]) -> list[Tensor]:
    """Adds what struct epx_python_operation has of its tensors, and returns those it is about."""
    about: list[Tensor] = []
    for i, tensor in enumerate(tensors):
        if tensor is None:
            members += _NONE
            continue
        if i not in _MADE:
            tensor = _in_memory(_NAMES[verb][i], tensor)
        about.append(tensor)
        shape = tensor.shape
        if len(shape) == 2:
            rows, columns = shape
        elif len(shape) == 1:
            rows, columns = shape[0], 1
        else:
            raise EPXError(Code.COUNT, f"{_NAMES[verb][i]} has {len(shape)} dimensions, want 2")
        members += (tensor.data_ptr(), rows, columns, _TYPES.get(tensor.dtype, _UNKNOWN_TYPE))
    members += _NONE * (12 - len(tensors))
    return about


def route_of(index: int) -> Route:
    """The route with the index; an error if it is freed."""
    route = routes.get(index)
    if route is None:
        raise EPXError(Code.ROUTE, "the route is freed")
    return route


def _stream_for(ids: Tensor, call: _Call) -> int:
    """The stream to queue on: the current one, or that of an operation that only begins."""
    on_device = ids.is_cuda
    comm = route_of(call.route).comm
    if on_device != comm.on_device:
        raise EPXError(
            Code.BUFFER, f"tensors on {ids.device}, the communicator's are {comm.memory}"
        )
    if not on_device:
        return 0
    if call.started is None or call.started.stream is None:
        stream: int = torch._C._cuda_getCurrentRawStream(ids.get_device())
        return stream
    call.started.stream.wait_stream(torch.cuda.current_stream(ids.device))
    return call.started.stream.cuda_stream


def _check_key(key: Tensor) -> None:
    if not key.is_cpu or key.dtype != torch.int64 or key.numel() != 1:
        raise EPXError(
            Code.BUFFER,
            f"routing.key is {key.dtype} {list(key.shape)} on {key.device}, want int64 [1] on the "
            "host, as dispatch returned it",
        )


def _operate(
    call: _Call,
    ids: Tensor,
    tensors: tuple[Tensor | None, ...],
    view: tuple[int, int, int, int] = (0, 0, 0, 0),
) -> None:
    """Calls EPX.

    Tensors are the input, weights, rows, output, weights of the output, and maybe fields of the
    input and of the output.
    """
    if call.verb not in (DISPATCH, ROUTE):
        _check_key(call.key)
    members = [call.verb, call.route, call.capacity, _stream_for(ids, call), call.key.data_ptr()]
    members += view
    about = _describe(members, call.verb, (ids, *tensors))
    if call.started is not None:
        call.started.tensors += [call.key, *about]
    try:
        if call.started is not None:
            call.started.number = start(members)
        elif number := run(members):
            wait(number, 0)
    except BaseException as error:
        if not isinstance(error, EPXError):  # but of a signal: the operation goes on
            route_of(call.route).comm._keep_until_ended((call.key, about))
        raise
    finally:
        started = call.started
        if started is not None and not started.number and started.stream is not None:
            torch.cuda.current_stream(ids.device).wait_stream(started.stream)


def _make_info(like: Tensor, route: Route) -> Tensor:
    """For the counts of the local experts and, behind them, the offsets of a routing."""
    num_offsets = 1 + (route.comm.size if route.layout == "rank" else route.local_experts)
    return empty(like, (route.local_experts + num_offsets,), torch.int32)


def _check_dispatched(x: Tensor, fields: tuple[Tensor, ...]) -> None:
    for name, tensor in zip(("x", *_FIELDS), (x, *fields)):
        if tensor.dim() != 2:
            raise EPXError(Code.COUNT, f"{name} has {tensor.dim()} dimensions, want 2")


def _make_dispatched(
    x: Tensor,
    weights: Tensor | None,
    fields: tuple[Tensor, ...],
    index: int,
    capacity: int,
    arena: Arena | None = None,
) -> Made:
    route = route_of(index)
    is_rank_major = route.layout == "rank"
    _check_dispatched(x, fields)
    shape = (capacity, route.top_k) if is_rank_major else (capacity,)
    return (
        receive_buffer(x, (capacity, x.shape[1]), arena),
        None if weights is None else empty(x, shape, torch.float32),
        host_word(x),
        _make_info(x, route),
        empty(x, (capacity, route.top_k), torch.int32) if is_rank_major else None,
        None,
        *(receive_buffer(field, (capacity, field.shape[1]), arena) for field in fields),
    )


def _view_of(info: Tensor, row_experts: Tensor | None, route: Route) -> tuple[int, int, int, int]:
    """The addresses that a routing writes what it shows to; on hosts it adds up ranks itself."""
    counts = info.data_ptr()
    experts = 0 if row_experts is None else row_experts.data_ptr()
    return counts, counts + 4 * route.local_experts, experts, int(info.is_cpu)


def add_up(info: Tensor, row_experts: Tensor | None, route: Route, capacity: int) -> None:
    """On a GPU makes offsets of what a routing in rank-major wrote."""
    if route.layout == "rank" and not info.is_cpu:
        add_up_ranks(info[route.local_experts :], row_experts, capacity)


def run_dispatch(
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    index: int,
    capacity: int,
    *fields: Tensor,
    started: Started | None = None,
) -> Made:
    route = route_of(index)
    made = _make_dispatched(x, weights, fields, index, capacity, route.comm._arena)
    rows, row_weights, key, info, row_experts, _, *row_fields = made
    nothing = (None,) * (MOST_FIELDS - len(fields)) if fields else ()
    _operate(
        _Call(DISPATCH, index, capacity, key, started),
        ids,
        (x, weights, None, rows, row_weights, *fields, *nothing, *row_fields),
        _view_of(info, row_experts, route),
    )
    if started is not None:
        started.tensors += [t for t in made if t is not None]
    else:
        add_up(info, row_experts, route, capacity)
    return made


def run_route(ids: Tensor, index: int, capacity: int, exact: bool) -> Made:
    """Returns what dispatch does, without rows, and with exact without the experts of rows."""
    route = route_of(index)
    key, info = host_word(ids), _make_info(ids, route)
    has_experts = route.layout == "rank" and not exact
    row_experts = empty(ids, (capacity, route.top_k), torch.int32) if has_experts else None
    call = _Call(ROUTE, index, capacity, key, None)
    _operate(call, ids, (), _view_of(info, row_experts, route))
    add_up(info, row_experts, route, capacity)
    return None, None, key, info, row_experts, None


def run_dispatch_by(
    key: Tensor,
    x: Tensor,
    ids: Tensor,
    weights: Tensor | None,
    index: int,
    capacity: int,
    *fields: Tensor,
    out: tuple[Tensor, ...] | None = None,
) -> Made:
    """Dispatch by a routing that there is: returns what dispatch does, of its routing the key.

    ``out``: the rows, their weights if there are any, and the rows of each field.
    """
    if out is None:
        made = _make_dispatched(x, weights, fields, index, capacity, route_of(index).comm._arena)
        rows, row_weights, row_fields = made[0], made[1], made[6:]
    else:
        _check_dispatched(x, fields)
        rows, *others = map(_check_out, out)
        row_weights = None if weights is None else others.pop(0)
        row_fields = tuple(others)
    nothing = (None,) * (MOST_FIELDS - len(fields)) if fields else ()
    call = _Call(DISPATCH_BY, index, capacity, key, None)
    tensors = (x, weights, None, rows, row_weights, *fields, *nothing, *row_fields)
    _operate(call, ids, tensors)
    return rows, row_weights, key, None, None, None, *row_fields


def _filled(made: Made, x: Tensor, index: int) -> tuple[Tensor, ...]:
    """What the op returns: a tensor without elements where dispatch makes none."""
    rows, row_weights, key, info, row_experts, tie, *row_fields = made
    if row_experts is None:
        row_experts = empty(x, (0, route_of(index).top_k), torch.int32)
    nothing = [
        empty(x, (0,), torch.float32) if tensor is None else tensor for tensor in (row_weights, tie)
    ]
    none = [empty(x, (0,), torch.float32) for _ in range(MOST_FIELDS - len(row_fields))]
    return rows, nothing[0], key, info, row_experts, nothing[1], *row_fields, *none


class Home(NamedTuple):
    """What a combine has from the home rank beside ids."""

    token_weights: Tensor | None = None
    out: Tensor | None = None


def _check_out(out: Tensor) -> Tensor:
    """What a caller has for the result is written where it lies."""
    if not out.is_contiguous() or out.is_neg():
        raise EPXError(Code.BUFFER, "out has gaps between its elements, or is negated by a view")
    return out


def _combine_output(y: Tensor, ids: Tensor, out: Tensor | None = None) -> Tensor:
    if y.dim() != 2:
        raise EPXError(Code.COUNT, f"y has {y.dim()} dimensions, want 2")
    if out is not None:
        return _check_out(out)
    return empty(y, (ids.shape[0], y.shape[1]), y.dtype)


_AT_HOME = Home()


def run_combine(
    y: Tensor,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    tie: Tensor,
    index: int,
    capacity: int,
    *biases: Tensor,
    home: Home = _AT_HOME,
    started: Started | None = None,
) -> Tensor:
    out = _combine_output(y, ids, home.out)
    call = _Call(COMBINE, index, capacity, key, started)
    no_biases = (None,) * (MOST_BIASES - len(biases))
    more = (*biases, *no_biases, home.token_weights) if biases or home is not _AT_HOME else ()
    _operate(call, ids, (y, row_weights, None, out, None, *more))
    return out


def _dispatch_backward_outputs(
    grad_rows: Tensor, grad_row_weights: Tensor | None, ids: Tensor
) -> tuple[Tensor, Tensor]:
    shape = (0,) if grad_row_weights is None else tuple(ids.shape)
    return (
        empty(grad_rows, (ids.shape[0], grad_rows.shape[1]), grad_rows.dtype),
        empty(grad_rows, shape, torch.float32),
    )


def run_dispatch_backward(
    grad_rows: Tensor,
    grad_row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    index: int,
    capacity: int,
) -> tuple[Tensor, Tensor]:
    grad_x, grad_weights = _dispatch_backward_outputs(grad_rows, grad_row_weights, ids)
    wanted = None if grad_row_weights is None else grad_weights
    call = _Call(DISPATCH_BACKWARD, index, capacity, key, None)
    _operate(call, ids, (grad_rows, grad_row_weights, None, grad_x, wanted))
    return grad_x, grad_weights


def _sizes_of_combined(
    y: Tensor | None, row_weights: Tensor | None, capacity: int, rows: int | None = None
) -> tuple[int, int]:
    """How many gradients of rows and of weights there are: as many as combine was given."""
    if rows is None:
        rows = capacity if y is None else y.shape[0]
    if y is None:
        return rows, 0
    return rows, rows if row_weights is None else row_weights.shape[0]


def _cut(made: Tensor, num: int, capacity: int, zeroes: bool) -> Tensor:
    """The gradients that are wanted; EPX zeroes those up to the capacity, if any."""
    if zeroes and num > capacity:
        made[capacity:].zero_()
    return made if made.shape[0] == num else made[:num]


def _fake_combine_backward(
    grad: Tensor, y: Tensor | None, row_weights: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    num, num_weights = _sizes_of_combined(y, row_weights, *rest[3:])  # behind ids, key and index
    grad_y = empty(grad, (num, grad.shape[1]), grad.dtype)
    return grad_y, empty(grad, (num_weights,), torch.float32)


def run_combine_backward(
    grad: Tensor,
    y: Tensor | None,
    row_weights: Tensor | None,
    ids: Tensor,
    key: Tensor,
    index: int,
    capacity: int,
    rows: int | None = None,
) -> tuple[Tensor, Tensor]:
    """As many gradients as combine had rows: ``rows``, else those of ``y``, else the capacity."""
    route = route_of(index)
    zeroes = route.zero_unused
    arena = None if grad.is_cpu else route.comm._arena  # transports of hosts stage it anyway
    num, num_weights = _sizes_of_combined(y, row_weights, capacity, rows)
    # The host does not know how many rows a GPU writes: at most the capacity. On hosts a row is
    # room enough, of which there is an address.
    least = capacity if zeroes or not grad.is_cpu else 1
    grad_y = receive_buffer(grad, (max(num, least), grad.shape[1]), arena)
    room = 0 if y is None else max(num_weights, least)
    grad_weights = empty(grad, (room,), torch.float32)
    wanted = None if y is None else grad_weights
    call = _Call(COMBINE_BACKWARD, index, capacity, key, None)
    _operate(call, ids, (grad, row_weights, y, grad_y, wanted))
    return (
        _cut(grad_y, num, capacity, zeroes),
        _cut(grad_weights, num_weights, capacity, zeroes),
    )


def given(fields: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    """The fields that are there: those of an op end with None."""
    return tuple(field for field in fields if field is not None)


class _Op(NamedTuple):
    """An op; its fake makes the outputs, of tensors without memory, from the same arguments."""

    schema: str
    kernel: Callable[..., Any]
    fake: Callable[..., Any]


_OPS = {
    "dispatch": _Op(
        "(Tensor x, Tensor ids, Tensor? weights, int route, SymInt capacity, Tensor? scales=None,"
        " Tensor? scales1=None, Tensor? scales2=None)"
        " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
        lambda x, ids, weights, index, capacity, *fields: _filled(
            run_dispatch(x, ids, weights, index, capacity, *given(fields)), x, index
        ),
        lambda x, ids, weights, index, capacity, *fields: _filled(
            _make_dispatched(x, weights, given(fields), index, capacity), x, index
        ),
    ),
    "combine": _Op(
        "(Tensor y, Tensor? row_weights, Tensor ids, Tensor key, Tensor tie, int route,"
        " SymInt capacity) -> Tensor",
        run_combine,
        lambda y, row_weights, ids, *_: _combine_output(y, ids),
    ),
    "dispatch_backward": _Op(
        "(Tensor grad_rows, Tensor? grad_row_weights, Tensor ids, Tensor key, int route,"
        " SymInt capacity) -> (Tensor, Tensor)",
        run_dispatch_backward,
        lambda grad, weights, ids, *_: _dispatch_backward_outputs(grad, weights, ids),
    ),
    "combine_backward": _Op(
        "(Tensor grad, Tensor? y, Tensor? row_weights, Tensor ids, Tensor key, int route,"
        " SymInt capacity, SymInt? rows=None) -> (Tensor, Tensor)",
        run_combine_backward,
        _fake_combine_backward,
    ),
}


def _keep_results(
    mode: Any, op: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> Any:
    """Trace an op for a compiler, which then keeps what it returns for the backward.

    A compiler that runs the op again in the backward leaves it out where no result is needed, on
    some ranks only, and the others wait.
    """
    meta = torch.fx.traceback.current_meta
    before = meta.get("recompute")
    meta["recompute"] = CheckpointPolicy.MUST_SAVE
    try:
        return mode.__torch_dispatch__(op, types, args, kwargs)
    finally:
        meta["recompute"] = before


library: Any = cast(Any, torch.library.Library)("epx", "DEF")
for _name, _op in _OPS.items():
    library.define(_name + _op.schema)
    library.impl(_name, _op.kernel, "CPU")
    library.impl(_name, _op.kernel, "CUDA")
    torch.library.register_fake(f"epx::{_name}", _op.fake, lib=library)
    torch.library.register_torch_dispatch(
        f"epx::{_name}", FunctionalTensorMode, _keep_results, lib=library
    )

dispatch = torch.ops.epx.dispatch.default
combine = torch.ops.epx.combine.default
dispatch_backward = torch.ops.epx.dispatch_backward.default
combine_backward = torch.ops.epx.combine_backward.default
# Compilers drop, merge and reorder no call of an op that has an effect: all ranks make each.
for _overload in (dispatch, combine, dispatch_backward, combine_backward):
    _register_effectful_op(_overload, _EffectType.ORDERED)
